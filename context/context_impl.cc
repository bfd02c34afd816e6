// SPDX-License-Identifier: Apache-2.0
#include "context/context_impl.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/functional/function_ref.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "collectives/hosts/ring.h"
#include "collectives/signature.h"
#include "common/fork.h"
#include "common/launch.h"
#include "common/out_of_memory.h"
#include "common/shortage.h"
#include "context/lost_ranks.h"
#include "context/rails.h"
#include "context/raise.h"
#include "context/split.h"
#include "nezha/errors.h"

namespace nezha {
namespace {

// Of how many operations that take long the other ranks are told: what blocks the others is an old
// one.
constexpr ptrdiff_t kTellsOf = 16;
// How long a context that has lost a rank waits for news of others that died together with it: much
// longer than it takes to find a process gone, and not long beside what it takes to go on without
// it.
constexpr Nanos kTogether = 200 * kMillisecond;
constexpr Nanos kLook = 10 * kMillisecond;  // between two looks at whether more ranks are dead

}  // namespace

ContextImpl::ContextImpl(std::shared_ptr<Store> store, ContextOptions options)
    : options_(std::move(options)) {
  if (store == nullptr) throw InvalidArgument("nezha: Context::create: no store");
  directory_ = std::make_shared<Directory>(std::move(store));
  if (const absl::Status status = complete_rank_and_size(options_.rank, options_.size);
      !status.ok()) {
    directory_->refuse(options_.rank, status.message());
    throw InvalidArgument("nezha: " + std::string(status.message()));
  }
  rank_of_ = absl::StrCat("rank ", options_.rank, " of ", options_.size);
  log_ = log_of_rank(options_.rank, options_.size);
}

ContextImpl::ContextImpl(const ContextImpl& parent, const std::vector<int>& group, UniqueId job)
    : endpoint_(parent.endpoint_),
      directory_(parent.directory_),
      options_(parent.options_),
      algorithm_(parent.algorithm_),
      checks_pointers_(parent.checks_pointers_),
      self_(parent.self_),
      chosen_(parent.chosen_),
      job_(job),
      rails_(parent.rails_),
      switch_rail_(parent.switch_rail_),
      is_switch_alone_(parent.is_switch_alone_) {
  const auto self = std::find(group.begin(), group.end(), parent.options_.rank);
  options_.rank = static_cast<int>(self - group.begin());
  options_.table.clear();  // the parent's alone
  options_.size = static_cast<int>(group.size());
  rank_of_ = absl::StrCat("rank ", options_.rank, " of ", options_.size, " (split from ",
                          parent.rank_of_, ")");
  log_ = log_of_part(rank_of_);
  listed_.reserve(group.size());
  for (const int rank : group) listed_.push_back(parent.listed(rank));
}

ContextImpl::~ContextImpl() { leave(); }

void ContextImpl::leave() {
  if (endpoint_ == nullptr) return;
  {
    Progress::Guard guard(endpoint_->progress());
    if (!running_.empty()) {
      break_context(absl::CancelledError("the context was destroyed with operations in flight"),
                    static_cast<uint32_t>(options_.rank));
    }
    closing_ = true;
  }
  if (starter_.joinable()) starter_.join();
  std::optional<DataLengthTable> learned;
  {
    Progress::Guard guard(endpoint_->progress());
    if (control_ != nullptr) learned = control_->learned();
    control_.reset();
    bystanders_.clear();
    loss_alarm_.reset();
    flare_.reset();
    endpoint_->leave(job_, this);
    endpoint_->progress().run_deferred();
  }
  if (learned) save(*learned);
}

void ContextImpl::check_process() const {
  if (is_inherited()) throw InvalidArgument(prefixed(rank_of_, kInherited));
}

// ---- Running -----------------------------------------------------------------------------------

ContextImpl& ContextImpl::of(const CollectiveOptions& options) {
  if (options.context_ == nullptr) throw InvalidArgument("nezha: no context in the options");
  return options.context_->impl();
}

void ContextImpl::check_tag(const CollectiveOptions& options) const {
  if (options.tag_ != kOwnTag) return;
  throw InvalidArgument(prefixed(rank_of_, absl::StrCat("the tag ", kOwnTag, " is nezha's own")));
}

std::shared_ptr<RunningOperation> ContextImpl::start(RunningOperation::Request request) {
  RunningOperationOwner& owner = *this;
  auto operation =
      std::make_shared<RunningOperation>(owner, endpoint_, rank_of_, std::move(request));
  Progress::Guard guard(endpoint_->progress());
  if (!broken_.ok()) raise(rank_of_, broken_);
  try {
    begin(operation);
  } catch (const OutOfMemory&) {
    on_operation_failed(caught_status());
  } catch (...) {
    endpoint_->on_exception(caught_status(), false);
  }
  if (!broken_.ok()) operation->fail(broken_);  // it may not be among those that run
  endpoint_->progress().run_deferred();
  return operation;
}

void ContextImpl::begin(const std::shared_ptr<RunningOperation>& operation) {
  running_.push_back(operation);
  const uint32_t tag = operation->request().operation.tag;
  const uint64_t ordinal = roll_call_.enter(tag, operation->request().signature);
  operation->begin(ordinal);
  // The others are not to name this rank as one that has not.
  if (roll_call_.has_said_absent(static_cast<uint32_t>(options_.rank), tag, ordinal)) {
    tell(*operation, wire::RollCallKind::kEntered);
  }
  check_roll_call(tag, ordinal);
  // Operations of one tag match in the order of their calls: none overtakes one that waits.
  if (operation->over()) {
    // Another rank calls another one.
  } else if (!operation->request().prepared.ok()) {
    on_operation_failed(operation->request().prepared);
  } else if (to_start_.empty() && unknown_peers(*operation).empty()) {
    launch(operation);
  } else {
    start_later(operation);
  }
}

void ContextImpl::give_up(const absl::Status& why) {
  Progress::Guard guard(endpoint_->progress());
  break_context(with_lost_ranks(why, lost_peers()), static_cast<uint32_t>(options_.rank));
  endpoint_->progress().run_deferred();
  raise(rank_of_, broken_);
}

// One that waits for a plan makes the others wait, of its tag at least.
void ContextImpl::launch(const std::shared_ptr<RunningOperation>& operation) {
  auto course = this->course(*operation);
  if (!course || !held_.empty()) {
    operation->waits_for(control_->why_held());
    held_.push_back(operation);
    return;
  }
  note_disturbance(*operation);
  operation->start(group_, *std::move(course));
}

std::vector<int> ContextImpl::unknown_peers(const RunningOperation& operation) const {
  const Operation& op = operation.request().operation;
  std::vector<int> peers = hosts_.peers(group_, op, operation.request().plan);
  const auto add = [&](const std::vector<int>& ranks) {
    peers.insert(peers.end(), ranks.begin(), ranks.end());
  };
  if (!engines_.empty() && options_.size > 1) {  // repairs go around the ring
    add(Ring::peers(options_.rank, options_.size));
    Operation gate;
    gate.collective = Collective::kBarrier;
    const bool has_gate = op.collective != Collective::kAllreduce && op.blocks == nullptr;
    if (has_gate) add(hosts_.peers(group_, gate, {kDissemination}));
  }
  std::erase_if(peers,
                [this](int rank) { return group_.channels[static_cast<size_t>(rank)] != nullptr; });
  std::sort(peers.begin(), peers.end());
  peers.erase(std::unique(peers.begin(), peers.end()), peers.end());
  return peers;
}

// ---- Operations whose peers are not known yet --------------------------------------------------

void ContextImpl::start_later(const std::shared_ptr<RunningOperation>& operation) {
  to_start_.push_back(operation);
  wake_starter();
}

void ContextImpl::wake_starter() {
  if (starting_ || closing_) return;
  starting_ = true;
  if (starter_.joinable()) starter_.join();  // it has ended
  auto thread = start_thread([this] { run_starter(); });
  if (thread.ok()) {
    starter_ = *std::move(thread);
    return;
  }
  starting_ = false;
  const absl::Status why = absl::ResourceExhaustedError(
      absl::StrCat("connecting to other ranks: ", thread.status().message()));
  if (to_start_.empty()) {
    log_->warn("no balancing: {}", std::string(why.message()));
  } else {
    on_operation_failed(why);
  }
}

// Asks the store, which may take long, for the peers of one operation after the other.
void ContextImpl::run_starter() {
  for (bool has_work = true; has_work;) {
    absl::Status status;
    try {
      has_work = start_next(status);
    } catch (...) {
      status = caught_status();
    }
    if (status.ok()) continue;
    Progress::Guard guard(endpoint_->progress());
    on_operation_failed(status);
    endpoint_->progress().run_deferred();
  }
}

// False: there is nothing left to do. `status` fails the context.
bool ContextImpl::start_next(absl::Status& status) {
  std::shared_ptr<RunningOperation> next;
  std::vector<int> peers;
  bool wants_control = false;
  {
    Progress::Guard guard(endpoint_->progress());
    next = next_to_start(peers);
    endpoint_->progress().run_deferred();
    wants_control = next == nullptr && std::exchange(wants_control_, false);
    if (closing_ || (next == nullptr && !wants_control)) {
      starting_ = false;
      return false;
    }
  }
  if (wants_control) {
    set_up_control();
  } else {
    status = resolve(*next, peers);
  }
  return true;
}

// Starts those whose peers are known. The first of the others, if there is one, and those peers.
std::shared_ptr<RunningOperation> ContextImpl::next_to_start(std::vector<int>& peers) {
  while (!to_start_.empty()) {
    auto next = to_start_.front();
    if (!next->over()) peers = unknown_peers(*next);
    if (!peers.empty()) return next;
    to_start_.pop_front();
    if (!next->over()) launch(next);
  }
  return nullptr;
}

absl::Status ContextImpl::resolve(RunningOperation& operation, const std::vector<int>& peers) {
  for (const int peer : peers) {
    {
      Progress::Guard guard(endpoint_->progress());
      if (operation.over()) return absl::OkStatus();
      operation.waits_for(absl::StrCat("rank ", peer, " has not appeared in the store (key '",
                                       Record::key(listed(peer)), "')"),
                          {peer});
    }
    absl::Status resolved = resolve(peer, operation.request().deadline);
    if (!resolved.ok()) return resolved;
  }
  return confirm_rank();
}

// Once: the ranks that have read the other process's record know nothing of this one. Those that
// wait for another rank look into the store only.
absl::Status ContextImpl::confirm_rank() {
  if (is_confirmed_ || !listed_.empty()) return absl::OkStatus();
  is_confirmed_ = true;
  absl::Status status = directory_->confirm(options_.rank, own_record());
  if (!status.ok()) directory_->refuse(options_.rank, status.message());
  return status;
}

// ---- Failure -----------------------------------------------------------------------------------

void ContextImpl::break_context(const absl::Status& why, uint32_t first_rank) {
  if (!broken_.ok()) return;
  broken_ = why;
  held_.clear();
  retained_.clear();
  const auto must = [this](absl::FunctionRef<void()> step) {
    try {
      step();
    } catch (...) {
      endpoint_->stop(caught_status());  // the others see that something has happened here
    }
  };
  if (loss_alarm_) loss_alarm_->cancel();
  for (const auto& operation : std::exchange(running_, {})) {
    must([&] { operation->fail(broken_); });
  }
  must([&] {
    log_->info("{}", std::string(why.message()));
    // Not from inside of one of their tasks.
    endpoint_->progress().defer([over = std::exchange(bystanders_, {})] {});
    tell_of(broken_, first_rank);
  });
}

// Ranks that die together are not found to be dead together: the context breaks a moment after the
// first news, so that the errors of all ranks name all of them.
void ContextImpl::on_loss(const absl::Status& why, uint32_t first_rank) {
  if (!broken_.ok()) return;
  const bool is_first = loss_.ok();
  const absl::Status all =
      is_first ? with_lost_ranks(why, lost_peers())
               : with_lost_ranks(with_lost_ranks(loss_, lost_ranks(why)), dead_peers());
  if (lost_ranks(all).empty()) return break_context(why, first_rank);
  const bool is_news = is_first || lost_ranks(all) != lost_ranks(loss_);
  loss_ = all;
  if (is_news) tell_of(loss_, first_rank);
  if (!is_first) return;
  loss_alarm_.emplace(endpoint_->progress(), [this, first_rank, end = now() + kTogether] {
    on_loss(loss_, first_rank);
    if (now() >= end) return break_context(loss_, first_rank);
    loss_alarm_->start(now() + kLook);
  });
  loss_alarm_->start(now() + kLook);
}

// Those that have left meanwhile may have done so for the loss.
std::vector<int> ContextImpl::dead_peers() const {
  std::vector<int> ranks;
  for (size_t rank = 0; rank < group_.channels.size(); ++rank) {
    const Channel* channel = group_.channels[rank];
    if (channel != nullptr && channel->is_peer_dead()) ranks.push_back(static_cast<int>(rank));
  }
  return ranks;
}

std::vector<int> ContextImpl::lost_peers() const {
  std::vector<int> ranks;
  for (size_t rank = 0; rank < group_.channels.size(); ++rank) {
    const Channel* channel = group_.channels[rank];
    const bool is_lost = channel != nullptr && channel->is_peer_lost(job_);
    if (is_lost) ranks.push_back(static_cast<int>(rank));
  }
  return ranks;
}

void ContextImpl::tell_of(const absl::Status& loss, uint32_t first_rank) {
  const std::string why(loss.message());
  const bool is_own = first_rank == static_cast<uint32_t>(options_.rank);
  const std::vector<int> lost = lost_ranks(loss);
  endpoint_->broadcast_abort({job_,
                              first_rank,
                              {lost.begin(), lost.end()},
                              is_own ? absl::StrCat("rank ", first_rank, ": ", why) : why});
}

void ContextImpl::on_operation_failed(const absl::Status& why) {
  const auto own = static_cast<uint32_t>(options_.rank);
  if (absl::IsUnavailable(why)) return on_loss(why, own);
  break_context(loss_.ok() ? with_lost_ranks(why, lost_peers()) : loss_, own);
}

void ContextImpl::on_peer_gone(const absl::Status& why) { on_operation_failed(why); }

void ContextImpl::on_operation_over(RunningOperation& operation) {
  const absl::Cleanup forget = [&] {
    std::erase_if(running_, [&](const auto& running) { return running.get() == &operation; });
  };
  measure(operation);
  const Operation& op = operation.request().operation;
  const bool is_allreduce = op.collective == Collective::kAllreduce;
  last_over_ = {now(), is_allreduce ? std::optional(size_class_of(op.bytes())) : std::nullopt};
}

void ContextImpl::on_operation_slow(RunningOperation& operation) {
  const auto oldest_end = running_.begin() + std::min(std::ssize(running_), kTellsOf);
  const bool is_old = std::any_of(running_.begin(), oldest_end,
                                  [&](const auto& old) { return old.get() == &operation; });
  if (is_old) tell(operation, wire::RollCallKind::kEntered);
}

void ContextImpl::on_operation_overdue(RunningOperation& operation) {
  tell(operation, wire::RollCallKind::kWhoIsAbsent);
}

void ContextImpl::tell(const RunningOperation& operation, wire::RollCallKind kind) {
  const auto& request = operation.request();
  on_roll_call({.context = job_,
                .tag = request.operation.tag,
                .rank = static_cast<uint32_t>(options_.rank),
                .ordinal = request.operation.ordinal,
                .signature = request.signature,
                .kind = kind});
}

void ContextImpl::check_roll_call(uint32_t tag, uint64_t ordinal) {
  const auto other = roll_call_.other(tag, ordinal);
  if (!other.has_value()) return;
  on_operation_failed(disagreement_error(options_.rank, other->rank, tag,
                                         roll_call_.signature(tag, ordinal), other->signature));
}

bool ContextImpl::is_cut_off() const {
  return std::any_of(group_.channels.begin(), group_.channels.end(), [](const Channel* channel) {
    return channel != nullptr && channel->is_cut_off();
  });
}

std::string ContextImpl::absent(const RunningOperation& operation) const {
  const auto& request = operation.request();
  return roll_call_.absent(request.operation.tag, request.operation.ordinal);
}

// A rank that has not entered the operation may be waiting for one that does not answer.
std::vector<int> ContextImpl::missing(const RunningOperation& operation) const {
  const Operation& op = operation.request().operation;
  const std::vector<int>& awaited = operation.awaited_ranks();
  std::set<uint32_t> ranks = roll_call_.silent(op.tag, op.ordinal);
  ranks.insert(awaited.begin(), awaited.end());
  for (size_t rank = 0; rank < group_.channels.size(); ++rank) {
    const Channel* channel = group_.channels[rank];
    if (channel == nullptr) continue;
    if (channel->is_silent() || channel->is_cut_off()) ranks.insert(static_cast<uint32_t>(rank));
  }
  if (ranks.empty()) ranks = roll_call_.absentees(op.tag, op.ordinal);
  return {ranks.begin(), ranks.end()};
}

void ContextImpl::on_roll_call(const wire::RollCall& call) {
  if (!broken_.ok() || call.rank >= static_cast<uint32_t>(options_.size)) return;
  if (!roll_call_.hear(call)) return;
  endpoint_->broadcast_roll_call(call);
  const bool is_of_this = call.rank == static_cast<uint32_t>(options_.rank);
  if (is_of_this && call.kind == wire::RollCallKind::kSilent) return deny_silence(call);
  if (call.kind == wire::RollCallKind::kWhoIsAbsent) tell_of_silence(call);
  if (roll_call_.has_entered(call.tag, call.ordinal)) {
    check_roll_call(call.tag, call.ordinal);
  } else if (call.kind == wire::RollCallKind::kWhoIsAbsent) {
    on_roll_call({.context = job_,
                  .tag = call.tag,
                  .rank = static_cast<uint32_t>(options_.rank),
                  .ordinal = call.ordinal,
                  .kind = wire::RollCallKind::kAbsent});
  }
}

// This rank answers, whatever another one takes it for.
void ContextImpl::deny_silence(const wire::RollCall& claim) {
  wire::RollCall answer = claim;
  const bool has_entered = roll_call_.has_entered(claim.tag, claim.ordinal);
  answer.kind = has_entered ? wire::RollCallKind::kEntered : wire::RollCallKind::kAbsent;
  answer.signature = has_entered ? roll_call_.signature(claim.tag, claim.ordinal) : 0;
  if (has_entered && answer.signature == 0) return;  // it is so long ago that nobody waits for it
  on_roll_call(answer);
}

void ContextImpl::tell_of_silence(const wire::RollCall& question) {
  for (size_t rank = 0; rank < group_.channels.size(); ++rank) {
    const Channel* channel = group_.channels[rank];
    if (channel == nullptr || !channel->is_silent()) continue;
    wire::RollCall answer = question;
    answer.rank = static_cast<uint32_t>(rank);
    answer.signature = 0;
    answer.kind = wire::RollCallKind::kSilent;
    on_roll_call(answer);
  }
}

// Another rank may have taken this one for dead. Here its words would seem to be about a third
// rank.
void ContextImpl::on_abort(const wire::Abort& abort) {
  const auto own = static_cast<uint32_t>(options_.rank);
  const bool is_of_this = abort.rank != own && absl::StrContains(abort.reason, self_);
  std::vector<int> lost;
  for (const uint32_t rank : abort.lost) {
    if (rank < static_cast<uint32_t>(options_.size)) lost.push_back(static_cast<int>(rank));
  }
  const auto why = absl::AbortedError(is_of_this ? absl::StrCat("rank ", own,
                                                                " lives, but another rank has "
                                                                "lost its connections to it: ",
                                                                abort.reason)
                                                 : abort.reason);
  on_loss(with_lost_ranks(why, lost), abort.rank);
}

std::vector<RailStats> ContextImpl::rails() const {
  Progress::Guard guard(endpoint_->progress());
  std::vector<RailStats> stats;
  const Nanos time = now();
  for (const Rail rail : rails_) {
    const Device* device = endpoint_->device(rail);
    const RailCounters& counters = device->counters();
    const RailOutage outage = endpoint_->outage(rail);
    stats.push_back({device->name(), counters.bytes_sent, counters.bytes_received,
                     counters.segments_resent, counters.failures, counters.reconnections,
                     counters.last_failure, counters.rate, outage.peers,
                     outage.peers == 0 ? 0 : static_cast<double>(time - outage.since) / kSecond,
                     outage.why, endpoint_->lossy_peers(rail)});
  }
  if (flare_ != nullptr) {
    const flare::SessionCounters& counters = flare_->counters();
    stats.push_back({kSwitchRail, counters.bytes_sent, counters.bytes_received, counters.resent,
                     flare_->failures(), 0, "", 0, 0, 0, "", 0});
  }
  return stats;
}

}  // namespace nezha
