// SPDX-License-Identifier: Apache-2.0
#include "flare_offload/engine/flare_engine.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/environment.h"
#include "common/net/interface.h"

namespace nezha::flare {
namespace {

// The tag is next to the control plane's tag.
constexpr uint64_t kStreamTag = (uint64_t{1} << 63) | 1;

}  // namespace

absl::StatusOr<std::unique_ptr<FlareEngine>> FlareEngine::open(Progress& progress,
                                                               const FlareOptions& options,
                                                               const Group& group,
                                                               const UniqueId& job, RankLog log,
                                                               FlareEngineOwner& owner) {
  const std::string file = environment("NEZHA_FLARE_SECRET");
  if (file.empty()) {
    return absl::InvalidArgumentError(
        "NEZHA_FLARE_SECRET is not set; it names the file with the secret of the manager");
  }
  const absl::StatusOr<Secret> secret = read_secret(file);
  if (!secret.ok()) return secret.status();
  const absl::StatusOr<Address> address = address_of(options);
  if (!address.ok()) return address.status();
  absl::StatusOr<Way> way = open_way(options, *address);
  if (!way.ok()) return way.status();
  return std::unique_ptr<FlareEngine>(new FlareEngine(progress, options, group, job, std::move(log),
                                                      owner, *std::move(way), *secret));
}

FlareEngine::FlareEngine(Progress& progress, const FlareOptions& options, const Group& group,
                         const UniqueId& job, RankLog log, FlareEngineOwner& owner, Way way,
                         const Secret& secret)
    : progress_(progress),
      options_(options),
      group_(group),
      job_(job),
      log_(std::move(log)),
      owner_(owner),
      way_(std::move(way)),
      client_(progress, options.interface, options.manager, secret,
              {.on_granted = [this](const message::Granted& granted) { on_granted(granted); },
               .on_rejected =
                   [this](uint32_t attempt, const absl::Status& why) {
                     if (absl::IsUnauthenticated(why)) tell_of_refusal(why);
                     on_rejected(attempt, std::string(why.message()));
                   },
               .on_lost =
                   [this](uint32_t attempt, const std::string& why) {
                     if (attempt == attempt_) lose(absl::UnavailableError(why));
                   }}),
      tell_(progress, [this] { tell_of_waiting(); }),
      leader_(options.streams, group.size),
      again_(progress, [this] { try_again(); }) {}

FlareEngine::~FlareEngine() = default;

// ---- The session -------------------------------------------------------------------------------

absl::StatusOr<Address> FlareEngine::address_of(const FlareOptions& options) {
  return net::interface_address(options.interface,
                                {.family = options.manager.family(), .named = options.address});
}

absl::StatusOr<FlareEngine::Way> FlareEngine::open_way(const FlareOptions& options,
                                                       const Address& address) {
  absl::StatusOr<UdpPort> port =
      UdpPort::open_on(options.interface, address, options.ports, kMaxDatagram);
  if (!port.ok()) return port.status();
  const absl::StatusOr<Address> here = net::local_address(port->fd());
  if (!here.ok()) return here.status();
  return Way{*std::move(port), *here};
}

// The port stays bound to the interface and the address that it was opened for. Opens another port
// if the name means another interface now, or if the address has changed.
absl::Status FlareEngine::renew_way() {
  const absl::StatusOr<Address> address = address_of(options_);
  if (!address.ok()) return address.status();
  if (address->host() == way_.address.host() &&
      net::is_bound_to(way_.port.fd(), options_.interface)) {
    return absl::OkStatus();
  }
  absl::StatusOr<Way> way = open_way(options_, *address);
  if (!way.ok()) return way.status();
  way_ = *std::move(way);
  return absl::OkStatus();
}

void FlareEngine::connect(int rank, Channel& channel) {
  auto& stream = peers_[rank];
  stream = std::make_unique<MessageStream>(
      channel, group_.context, kStreamTag,
      MessageStream::Callbacks{
          .on_message = [this, rank](const std::string& bytes) { on_bytes(rank, bytes); },
          .on_failed = [this, rank](const absl::Status& why) { on_peer_gone(rank, why); }});
  stream->start();
  const bool is_last = group_.rank == 0 && static_cast<int>(peers_.size()) == group_.size - 1;
  if (is_last) try_again();
}

void FlareEngine::try_again() {
  if (!gone_.empty()) return;
  if (owner_.is_recovering()) return again_.start(now() + kLeastBackoff);
  joined_.clear();
  why_not_.clear();
  again_.start(now() + kAnswerTime);
  broadcast(rank_message::Join{attempt_ + 1});
}

void FlareEngine::ask(uint32_t attempt) {
  if (is_up_ || !running_.empty() || !waiting_.empty() || owner_.is_recovering()) {
    return on_rejected(attempt, "this rank has not given up the earlier session yet");
  }
  attempt_ = attempt;
  session_.reset();  // left by an attempt that failed; it holds the port
  if (const absl::Status status = renew_way(); !status.ok()) {
    return on_rejected(attempt, std::string(status.message()));
  }
  log_->debug("asking the manager at {} for a session, attempt {}", options_.manager.str(),
              attempt);
  const absl::StatusOr<size_t> mtu = path_mtu(options_.manager, options_.interface);
  if (!mtu.ok()) return on_rejected(attempt, std::string(mtu.status().message()));
  const size_t payload = payload_for(*mtu, options_.manager.family() == AF_INET6) / 8 * 8;
  client_.set_local(way_.address);
  client_.join({.request = {job_, attempt},
                .rank = group_.rank,
                .size = group_.size,
                .address = way_.address,
                .payload = static_cast<uint32_t>(payload),
                .window = options_.window,
                .streams = options_.streams,
                .multicast = has_multicast_,
                .reproducible = options_.reproducible});
}

void FlareEngine::on_granted(const message::Granted& granted) {
  if (granted.streams != options_.streams) {
    return on_rejected(
        attempt_, absl::StrCat("the manager granted ", granted.streams, " streams instead of the ",
                               options_.streams, " that this rank asked for"));
  }
  std::optional<UdpPort> group;
  if (granted.group) {
    absl::StatusOr<UdpPort> joined =
        UdpPort::join(*granted.group, options_.interface, kMaxDatagram);
    // The next attempt is without multicast, unless this one merely had no descriptor to join with.
    has_multicast_ = joined.ok() || absl::IsResourceExhausted(joined.status());
    if (!joined.ok()) return on_rejected(attempt_, std::string(joined.status().message()));
    group = *std::move(joined);
  }
  last_.reset();
  const auto rank = static_cast<uint32_t>(group_.rank);
  const auto size = static_cast<uint32_t>(group_.size);
  const Stagger stagger = {options_.stagger, rank * options_.stagger / size};
  session_ =
      std::make_unique<SwitchSession>(progress_, way_.port, std::move(group), granted, stagger,
                                      counters_, [this](const absl::Status& why) { on_over(why); });
  const absl::Status status = session_->start();
  if (!status.ok()) return on_rejected(attempt_, std::string(status.message()));
  send(0, rank_message::Joined{attempt_, ""});
}

// Logs the refusal at this rank, whose operator can fix the cause. Rank 0 logs the reason of one
// rank only.
void FlareEngine::tell_of_refusal(const absl::Status& why) {
  if (!refusals_.tell_of(options_.manager.str(), now())) return;
  log_->warn("in-network computing is not available: {}", std::string(why.message()));
}

void FlareEngine::on_rejected(uint32_t attempt, const std::string& why) {
  send(0, rank_message::Joined{attempt, why.empty() ? "no reason given" : why});
}

// Runs at rank 0. Once all ranks have answered, the session is up or the attempt has failed.
void FlareEngine::on_joined(int rank, const rank_message::Joined& joined) {
  if (joined.attempt != attempt_) return;
  if (is_up_) {
    if (!joined.why.empty()) lose(absl::UnavailableError(joined.why));
    return;
  }
  joined_.insert(rank);
  if (!joined.why.empty() && why_not_.empty()) {
    why_not_ = absl::StrCat("rank ", rank, ": ", joined.why);
  }
  if (static_cast<int>(joined_.size()) < group_.size) return;
  again_.cancel();
  if (why_not_.empty()) {
    backoff_ = kLeastBackoff;
    leader_.begin();
    broadcast(rank_message::Up{attempt_});
    return;
  }
  log_->warn("in-network computing is not available; nezha tries again in {} s: {}",
             backoff_ / kSecond, why_not_);
  broadcast(rank_message::Down{attempt_});
}

void FlareEngine::on_up(uint32_t attempt) {
  if (attempt != attempt_ || session_ == nullptr || lost_ == attempt) return;
  is_up_ = true;
  log_->info("in-network computing is available, attempt {}", attempt);
  owner_.on_engine_up();
}

void FlareEngine::on_over(const absl::Status& why) {
  if (session_->is_deaf()) has_multicast_ = false;
  lose(why);
}

// This rank loses the session. The owner finds out what that means for all ranks, and then takes
// what was retained.
void FlareEngine::lose(const absl::Status& why) {
  if (std::exchange(lost_, attempt_) == attempt_) return;  // manager and session may both tell
  if (!is_up_) return on_rejected(attempt_, std::string(why.message()));
  log_->warn("in-network computing is lost: {}", std::string(why.message()));
  set_down();
  owner_.on_engine_down();
}

void FlareEngine::set_down() {
  if (std::exchange(is_up_, false)) ++failures_;
}

std::vector<Retained> FlareEngine::take_retained() {
  auto retained = session_ == nullptr ? std::vector<Retained>() : session_->take_retained();
  set_down();
  drop_session();
  return retained;
}

void FlareEngine::drop_session() {
  client_.leave();
  if (session_ != nullptr) session_->stop();
  last_ = std::move(session_);
  streams_.clear();
  leader_.clear();
  if (group_.rank != 0) return;
  again_.start(now() + backoff_);
  backoff_ = std::min(2 * backoff_, kMostBackoff);
}

// ---- The ranks ---------------------------------------------------------------------------------

void FlareEngine::send(int rank, const rank_message::Message& message) {
  if (rank != group_.rank) {
    const auto peer = peers_.find(rank);
    if (peer != peers_.end()) peer->second->send(rank_message::encode(message));
    return;
  }
  const absl::Status status = on_message(rank, message);
  if (!status.ok()) owner_.on_failed(status);
}

void FlareEngine::broadcast(const rank_message::Message& message) {
  const std::string bytes = rank_message::encode(message);
  for (auto& [rank, stream] : peers_) stream->send(bytes);
  send(0, message);
}

void FlareEngine::on_bytes(int from, const std::string& bytes) {
  const auto message = rank_message::decode(bytes);
  const absl::Status status = message.ok() ? on_message(from, *message) : message.status();
  if (status.ok()) return;
  owner_.on_failed(absl::InternalError(
      absl::StrCat("rank ", from, " does not follow the protocol: ", status.message())));
}

absl::Status FlareEngine::on_message(int from, const rank_message::Message& message) {
  namespace kind = rank_message;
  if (from == 0) {
    if (const auto* join = std::get_if<kind::Join>(&message)) {
      ask(join->attempt);
      return absl::OkStatus();
    }
    if (const auto* up = std::get_if<kind::Up>(&message)) {
      on_up(up->attempt);
      return absl::OkStatus();
    }
    if (const auto* down = std::get_if<kind::Down>(&message)) {
      const bool is_idle = !is_up_ && running_.empty() && waiting_.empty();
      if (down->attempt == attempt_ && is_idle) drop_session();
      return absl::OkStatus();
    }
    if (const auto* order = std::get_if<kind::Order>(&message)) {
      on_order(*order);
      return absl::OkStatus();
    }
    if (const auto* keep = std::get_if<kind::Keep>(&message)) {
      if (is_current(keep->attempt, keep->stream)) this->keep(*keep);
      return absl::OkStatus();
    }
  }
  if (group_.rank == 0) {
    if (const auto* joined = std::get_if<kind::Joined>(&message)) {
      on_joined(from, *joined);
      return absl::OkStatus();
    }
    if (const auto* started = std::get_if<kind::Started>(&message)) {
      on_started(from, *started);
      return absl::OkStatus();
    }
  }
  return absl::InvalidArgumentError(absl::StrCat("it sent a message of kind ", message.index(),
                                                 ", which is not for rank ", group_.rank));
}

// The peer may have left after all its operations were over, or it may have died.
void FlareEngine::on_peer_gone(int rank, const absl::Status& why) {
  if (!gone_.try_emplace(rank, now(), why).second) return;
  for (const auto& [name, task] : std::map(waiting_)) task->fail(why);
}

void FlareEngine::on_task_pending(FlareTask& task, const std::vector<RankRange>& missing) {
  for (const auto& [rank, gone] : gone_) {
    for (const RankRange& ranks : missing) {
      const bool is_named = rank >= ranks.first && rank < ranks.first + ranks.count;
      if (is_named && now() - gone.first > kStale) return task.fail(gone.second);
    }
  }
}

void FlareEngine::set_awaited(bool is_awaited) {
  for (auto& [rank, stream] : peers_) stream->set_awaited(is_awaited);
}

// ---- Operations --------------------------------------------------------------------------------

absl::StatusOr<std::unique_ptr<Task>> FlareEngine::start(const Group& group, const Slice& slice,
                                                         const EnginePlan& plan, TaskOwner& owner) {
  if (absl::Status status = supports(slice.operation); !status.ok()) return status;
  const size_t payload = session_ == nullptr ? 8 : session_->payload();
  FlareTaskOwner& self = *this;
  auto task = std::make_unique<FlareTask>(self, group, slice, plan, payload, owner);
  if (task->blocks() == 0) {
    task->end();
    return task;
  }
  if (!is_up_) {
    task->lose(absl::UnavailableError("there is no session with a switch"));
    return task;
  }
  if (const auto leader = gone_.find(0); leader != gone_.end()) {  // nobody would give it a stream
    task->fail(leader->second.second);
    return task;
  }
  if (waiting_.empty() && running_.empty()) set_awaited(true);
  task->started_at = now();
  const OperationId name = slice.operation.id();
  waiting_[name] = task.get();
  if (const auto stream = streams_.take(name)) {
    assign(*task, *stream);
  } else if (group_.rank == 0) {
    leader_.add(name);
    order_waiting();
  } else if (options_.streams == 1) {  // it is for operations that all ranks have started
    tell(*task);
  } else if (!tell_.armed()) {
    tell_.start(now() + kTellAfter);
  }
  return task;
}

void FlareEngine::assign(FlareTask& task, int stream) {
  waiting_.erase(task.operation().id());
  running_.insert(&task);
  task.run(*session_, stream);
}

bool FlareEngine::is_current(uint32_t attempt, uint32_t stream) const {
  return attempt == attempt_ && session_ != nullptr &&
         stream < static_cast<uint32_t>(session_->streams());
}

// Assigns the stream to all operations of the tag that wait here, in the order of their calls.
void FlareEngine::keep(const rank_message::Keep& keep) {
  streams_.on_keep({keep.tag, keep.ordinal}, static_cast<int>(keep.stream));
  std::vector<FlareTask*> tasks;
  for (auto at = waiting_.lower_bound({keep.tag, keep.ordinal});
       at != waiting_.end() && at->first.tag == keep.tag; ++at) {
    tasks.push_back(at->second);
  }
  for (FlareTask* const task : tasks) {
    leader_.forget(task->operation().id());
    assign(*task, static_cast<int>(keep.stream));
  }
}

void FlareEngine::on_order(const rank_message::Order& order) {
  if (group_.rank == 0 || !is_current(order.attempt, order.stream)) return;
  const OperationId name{order.tag, order.ordinal};
  const auto waiting = waiting_.find(name);
  if (waiting != waiting_.end()) {
    assign(*waiting->second, static_cast<int>(order.stream));
  } else {
    streams_.on_order(name, static_cast<int>(order.stream));
  }
}

void FlareEngine::tell_of_waiting() {
  bool has_untold = false;
  for (const auto& [name, task] : waiting_) {
    if (task->is_told) continue;
    if (now() - task->started_at < kTellAfter) {
      has_untold = true;
      continue;
    }
    tell(*task);
  }
  if (has_untold) tell_.start(now() + kTellAfter);
}

void FlareEngine::tell(FlareTask& task) {
  task.is_told = true;
  const Operation& op = task.operation();
  send(0, rank_message::Started{attempt_, op.tag, op.ordinal});
}

// The functions from here on run at rank 0.

void FlareEngine::on_started(int rank, const rank_message::Started& started) {
  if (started.attempt != attempt_ || session_ == nullptr) return;
  const OperationId name{started.tag, started.ordinal};
  if (streams_.kept_stream(name)) return;  // the rank will hear of it
  // If the operation has started here and does not wait, its order is under way or it is over.
  if (!waiting_.contains(name) && owner_.has_started(name)) return;
  leader_.on_started(rank, name);
  order_waiting();
}

void FlareEngine::order_waiting() {
  if (!is_up_) return;
  while (const auto choice = leader_.next()) order(*choice);
}

void FlareEngine::order(const StreamLeader::Choice& choice) {
  const auto [tag, ordinal] = choice.name;
  const auto stream = static_cast<uint32_t>(choice.stream);
  if (choice.is_kept) return broadcast(rank_message::Keep{attempt_, stream, tag, ordinal});
  const std::string bytes =
      rank_message::encode(rank_message::Order{attempt_, stream, tag, ordinal});
  for (auto& [rank, peer] : peers_) peer->send(bytes);
  assign(*waiting_.at(choice.name), choice.stream);
}

void FlareEngine::on_task_done(FlareTask& task) {
  forget(task);
  if (group_.rank != 0 || task.stream() == FlareTask::kNoStream || !is_up_) return;
  if (streams_.is_kept_for(task.operation().tag, task.stream())) return;
  leader_.free(task.stream());
  order_waiting();
}

void FlareEngine::on_detached(FlareTask& task) { forget(task); }

void FlareEngine::forget(FlareTask& task) {
  const bool was_there =
      running_.erase(&task) +
          std::erase_if(waiting_, [&](const auto& entry) { return entry.second == &task; }) >
      0;
  leader_.forget(task.operation().id());
  if (was_there && waiting_.empty() && running_.empty()) set_awaited(false);
}

std::string FlareEngine::why_waiting() const {
  if (!is_up_) return "its session with the switch is lost";
  return group_.rank == 0
             ? "it waits for a stream of the session, because other operations use all of them"
             : "rank 0 has not said which stream of the session it uses";
}

}  // namespace nezha::flare
