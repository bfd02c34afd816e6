// SPDX-License-Identifier: Apache-2.0
#include "context/control_plane.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "collectives/hosts/choice.h"
#include "collectives/schedule_kind.h"
#include "control/fixed_policy.h"
#include "control/model_policy.h"
#include "control/paper_policy.h"
#include "control/shuffle_policy.h"
#include "control/table_file.h"

namespace nezha {
namespace {

// Differs from all tags of operations, which have 40 bits.
constexpr uint64_t kStreamTag = uint64_t{1} << 63;

constexpr const char* kStripes = "stripes";

}  // namespace

ControlPlane::ControlPlane(Progress& progress, ControlPlaneOwner& owner, Options options)
    : progress_(progress),
      owner_(owner),
      options_(std::move(options)),
      plans_({{0, {}}}),
      flush_(progress, [this] { flush(); }),
      self_(std::make_shared<ControlPlane*>(this)) {}

// ---- Setting up --------------------------------------------------------------------------------

void ControlPlane::set_lanes(const std::vector<std::string>& names,
                             const std::vector<RailMask>& rails,
                             const std::vector<std::string>& engines) {
  names_ = names;
  lanes_ = rails;
  first_engine_ = lanes();
  for (const std::string& engine : engines) {
    engines_ |= lane_bit(lanes());
    names_.push_back(engine);
    lanes_.push_back(0);
  }
  if (!options_.has_stripes || lanes() == 1) return;
  stripes_ = lane_bit(lanes());
  names_.emplace_back(kStripes);
  lanes_.push_back(kAllRails);
}

LaneSet ControlPlane::live() const {
  LaneSet live = 0;
  for (int lane = 0; lane < lanes(); ++lane) {
    const bool is_stripes = rails(lane) == kAllRails;
    if (is_stripes || (rails(lane) & ~down_) != 0) live |= lane_bit(lane);
  }
  return live | (engines_ & ~lost_);
}

void ControlPlane::connect(int rank, Channel& channel) {
  auto& stream = peers_[rank];
  stream = std::make_unique<MessageStream>(
      channel, options_.context, kStreamTag,
      MessageStream::Callbacks{
          .on_message = [this, rank](const std::string& bytes) { on_bytes(rank, bytes); },
          .on_failed = [this, rank](const absl::Status& why) { on_peer_gone(rank, why); }});
  stream->start();
  const bool is_last = options_.rank != 0 || static_cast<int>(peers_.size()) == options_.size - 1;
  if (!is_last) return;
  told_live_ = live();
  send(control_message::Lanes{told_live_});
}

Algorithm ControlPlane::rival(uint64_t bytes) const {
  return options_.tries_algorithms ? nezha::rival(options_.size, bytes) : Algorithm::kAuto;
}

bool ControlPlane::is_worthwhile(int lanes, uint64_t bytes) const {
  return lanes > 1 || (options_.size <= kMostOfOneRail && rival(bytes) != Algorithm::kAuto);
}

void ControlPlane::saw_named(uint64_t bytes) {
  if (rival(bytes) != Algorithm::kAuto) options_.tries_algorithms = false;
}

std::unique_ptr<Policy> ControlPlane::make_policy() const {
  if (options_.takes_engine_alone) {
    return std::make_unique<FixedPolicy>(lanes(), alone(), first_engine_);
  }
  if (options_.policy == BalancePolicy::kPaper && lanes() > 1) {
    return std::make_unique<PaperPolicy>(lanes());
  }
  if (options_.policy == BalancePolicy::kShuffle && lanes() > 1) {
    return std::make_unique<ShufflePolicy>(lanes(), alone(), options_.tries_algorithms);
  }
  const auto rival = [this](SizeClass size_class) {
    const Algorithm it = this->rival(typical_bytes(size_class));
    return it == Algorithm::kAuto ? std::nullopt : std::optional(it);
  };
  const size_t whole_from = options_.has_engines ? SIZE_MAX : SizeRegimes::kWhole;
  return std::make_unique<ModelPolicy>(
      lanes(), alone(), [this](bool also_tried) { return rates(also_tried); }, rival,
      size_class_of(whole_from));
}

// For each byte of a message a rank sends at least 2(n-1)/n bytes (Patarasuk and Yuan 2009).
std::vector<double> ControlPlane::rates(bool also_tried) const {
  const int ranks = std::max(options_.size, 2);
  const double sent = 2 * (ranks - 1.) / ranks;
  std::vector<double> rates;
  rates.reserve(static_cast<size_t>(lanes()));
  for (int lane = 0; lane < lanes(); ++lane) {
    const bool is_engine = contains(engines_, lane);
    rates.push_back(is_engine ? kNoRate : owner_.rate(rails(lane), also_tried) / sent);
  }
  return rates;
}

void ControlPlane::create_coordinator() {
  if (is_over_) return;
  LaneSet live = all_lanes(lanes());
  for (const auto& [rank, lanes] : ready_) live &= lanes;
  const bool is_one = lanes() == 1 && live != 0;
  if (std::popcount((live | engines_) & ~alone()) < 2 && !is_one) {
    options_.log->info("load balancing is off: the ranks have fewer than two rails in common");
    return;
  }
  LoadBalancer balancer(names_, make_policy());
  balancer.tell({options_.log, [this](bool also_tried) { return rates(also_tried); }});
  coordinator_ = std::make_unique<Coordinator>(
      options_.size, std::move(balancer),
      [this](const control_message::Message& message) { broadcast(message); });
  for (const auto& [rank, lanes] : ready_) (void)coordinator_->on_lanes(rank, lanes);
  saves_ = !options_.table_path.empty();
  if (!options_.table) return;
  const absl::Status resumed = coordinator_->resume(*options_.table);
  if (resumed.ok()) return;
  options_.log->warn("{}: {}; nezha leaves the file unchanged, and learns anew",
                     options_.table_path, std::string(resumed.message()));
  saves_ = false;
}

// ---- Operations --------------------------------------------------------------------------------

std::optional<ControlPlane::PlannedSplit> ControlPlane::start(const OperationId& operation,
                                                              uint64_t bytes) {
  const auto number = follower_.start(operation);
  if (!number) return std::nullopt;
  if (coordinator_ != nullptr && options_.takes_engine_alone) coordinator_->saw(bytes);
  const auto plan = plans_.find(*number);
  if (plan == plans_.end()) return PlannedSplit{*number, 0, {}};
  const SizeClass size_class = size_class_of(bytes);
  const auto& [engines, classes] = plan->second;
  const auto entry = entry_of(classes, size_class);
  if (entry == classes.end()) return PlannedSplit{*number, 0, {}};
  const bool is_own = entry->first == size_class;
  return PlannedSplit{*number,
                      is_own ? entry->second.number : 0,
                      entry->second.allocation,
                      is_own ? entry->second.algorithm : Algorithm::kAuto,
                      engines,
                      is_recovering() ? lane_bit(recovering_) : 0};
}

// A class whose operations always overlap never gets an allocation. The nearest class may have
// messages so short that one rail is best for them, so stripes, which balance themselves, are the
// better default if they are a lane.
ControlPlane::Classes::const_iterator ControlPlane::entry_of(const Classes& classes,
                                                             SizeClass size_class) const {
  return stripes_ != 0 && engines_ == 0 ? classes.find(size_class) : nearest(classes, size_class);
}

void ControlPlane::add(Reading reading) {
  // Only a reading that counts opens the class. A class whose operations teach nothing, because
  // they overlap with others, would stay with its first allocation.
  const bool counts =
      std::any_of(reading.lanes.begin(), reading.lanes.end(), [](Nanos time) { return time > 0; });
  if (coordinator_ != nullptr && counts && is_worthwhile(lanes(), reading.bytes)) {
    coordinator_->saw(reading.bytes);
  }
  if (reading.allocation == 0 || peers_.empty() || !sample_.takes(reading)) return;
  const bool is_awaited = sample_.is_awaited(size_class_of(reading.bytes));
  readings_.push_back(std::move(reading));
  if (readings_.size() >= kBatch || is_awaited || coordinator_ != nullptr) return flush();
  if (!flush_.armed()) flush_.start(now() + kBatchTime);
}

void ControlPlane::flush() {
  flush_.cancel();
  send(control_message::Readings{std::exchange(readings_, {})});
}

void ControlPlane::set_down(RailMask down) {
  if (down == down_ || peers_.empty()) return;
  down_ = down;
  tell_lanes();
}

void ControlPlane::tell_lanes() {
  if (live() == told_live_ || peers_.empty()) return;
  told_live_ = live();
  send(control_message::Lanes{told_live_});
}

// ---- Engines -----------------------------------------------------------------------------------

void ControlPlane::lose_engine(int lane) {
  if (!contains(engines_ & ~lost_, lane)) return;
  lost_ |= lane_bit(lane);
  send(control_message::Lost{lane});
  tell_lanes();
}

// The engine does not count as live before the recovery from its loss ends: plans that are made
// from then on may use it.
void ControlPlane::regain_engine(int lane) {
  if (lane == recovering_ || !contains(lost_, lane)) return;
  lost_ &= ~lane_bit(lane);
  tell_lanes();
}

absl::Status ControlPlane::on_freeze(const control_message::Freeze& freeze) {
  if (is_recovering() || !contains(engines_, freeze.lane)) {
    return absl::InvalidArgumentError(
        absl::StrCat("it asks this rank to freeze lane ", freeze.lane,
                     is_recovering() ? " during another recovery" : ", which is no engine"));
  }
  options_.log->info("engine {} is lost; the hosts go on without it",
                     names_[static_cast<size_t>(freeze.lane)]);
  recovering_ = freeze.lane;
  epoch_ = freeze.epoch;
  lost_ |= lane_bit(freeze.lane);
  for (auto& [number, plan] : plans_) plan.engines &= ~lane_bit(freeze.lane);
  set_awaited(true);
  tell_lanes();  // ahead of the report
  send(control_message::Frozen{freeze.epoch, owner_.on_freeze(freeze.lane)});
  return absl::OkStatus();
}

absl::Status ControlPlane::on_recover(const control_message::Recover& recover) {
  if (!is_recovering() || recover.epoch != epoch_) {
    return absl::InvalidArgumentError(absl::StrCat("it asks this rank to recover in epoch ",
                                                   recover.epoch,
                                                   ", which is not the current recovery"));
  }
  size_t pieces = 0;
  for (const Repair& repair : recover.repairs) pieces += repair.pieces.size();
  options_.log->info(
      "recovery {}: {} operations go on without the engine, some of them in {} pieces",
      recover.epoch, recover.repairs.size(), pieces);
  const int lane = std::exchange(recovering_, -1);
  set_awaited(follower_.is_waiting());
  return owner_.on_recover(lane, recover.epoch, recover.repairs);
}

std::string ControlPlane::why_frozen() const {
  if (coordinator_ == nullptr)
    return "rank 0 has not yet said how the operation goes on without an engine";
  return absl::StrCat("the operation goes on without an engine once rank ",
                      absl::StrJoin(coordinator_->not_frozen(), ", "), " has answered");
}

// ---- Messages ----------------------------------------------------------------------------------

void ControlPlane::send(const control_message::Message& message) {
  if (options_.rank != 0) {
    const auto peer = peers_.find(0);
    if (peer != peers_.end()) peer->second->send(control_message::encode(message));
    return;
  }
  // Deferred, so that it does not run inside the coordinator or an operation.
  progress_.defer([self = std::weak_ptr<ControlPlane*>(self_), message] {
    const auto there = self.lock();
    if (there == nullptr) return;
    ControlPlane& plane = **there;
    const absl::Status status = plane.on_message(0, message);
    if (!status.ok()) plane.owner_.on_failed(status);
  });
}

// Sending may end an operation, from which another broadcast may follow. That one waits until this
// one has gone to every rank, so that all ranks get both in one order.
void ControlPlane::broadcast(const control_message::Message& message) {
  to_broadcast_.push_back(message);
  if (std::exchange(is_broadcasting_, true)) return;
  const absl::Cleanup end = [this] { is_broadcasting_ = false; };
  for (; !to_broadcast_.empty(); to_broadcast_.pop_front()) {
    const control_message::Message& next = to_broadcast_.front();
    const std::string bytes = control_message::encode(next);
    for (auto& [rank, stream] : peers_) stream->send(bytes);
    send(next);
  }
}

void ControlPlane::on_bytes(int from, const std::string& bytes) {
  const auto message = control_message::decode(bytes, lanes());
  const absl::Status status = message.ok() ? on_message(from, *message) : message.status();
  if (status.ok()) return;
  owner_.on_failed(absl::InternalError(
      absl::StrCat("rank ", from, " does not follow the protocol: ", status.message())));
}

absl::Status ControlPlane::on_message(int from, const control_message::Message& message) {
  namespace kind = control_message;
  if (const auto* prepare = std::get_if<kind::Prepare>(&message); prepare && from == 0) {
    return on_prepare(prepare->plan);
  }
  if (const auto* commit = std::get_if<kind::Commit>(&message); commit && from == 0) {
    return on_commit(*commit);
  }
  if (const auto* freeze = std::get_if<kind::Freeze>(&message); freeze && from == 0) {
    return on_freeze(*freeze);
  }
  if (const auto* recover = std::get_if<kind::Recover>(&message); recover && from == 0) {
    return on_recover(*recover);
  }
  if (options_.rank == 0) {
    if (const auto* lanes = std::get_if<kind::Lanes>(&message)) return on_lanes(from, lanes->live);
    if (coordinator_ == nullptr) return absl::OkStatus();  // there is nothing to balance
    if (const auto* readings = std::get_if<kind::Readings>(&message)) {
      return coordinator_->on_readings(from, readings->readings);
    }
    if (const auto* report = std::get_if<kind::Report>(&message)) {
      return coordinator_->on_report(from, *report);
    }
    if (const auto* lost = std::get_if<kind::Lost>(&message);
        lost && contains(engines_, lost->lane)) {
      return coordinator_->on_lost(lost->lane);
    }
    if (const auto* frozen = std::get_if<kind::Frozen>(&message)) {
      return coordinator_->on_frozen(from, *frozen);
    }
  }
  return absl::InvalidArgumentError(absl::StrCat("it sent a control message of kind ",
                                                 message.index(), ", which is not for rank ",
                                                 options_.rank));
}

absl::Status ControlPlane::on_lanes(int from, LaneSet live) {
  if (coordinator_ != nullptr) return coordinator_->on_lanes(from, live);
  ready_[from] = live;
  if (static_cast<int>(ready_.size()) == options_.size) create_coordinator();
  return absl::OkStatus();
}

absl::Status ControlPlane::on_prepare(uint32_t plan) {
  auto operations = follower_.prepare(plan);
  if (!operations.ok()) return operations.status();
  set_awaited(true);
  send(control_message::Report{plan, *std::move(operations)});
  return absl::OkStatus();
}

absl::Status ControlPlane::on_commit(const control_message::Commit& commit) {
  Plan plan = plans_[follower_.current()];
  absl::Status status = follower_.commit(
      commit.plan, commit.keep,
      [this](const OperationId& operation) { return owner_.has_started(operation); });
  if (!status.ok()) return status;
  for (const AllocationChange& change : commit.changes) {
    tell_of(commit.plan, change);
    plan.classes[change.size_class] = {change.number, change.allocation, change.algorithm};
    sample_.on_change(change.size_class, change.number, change.is_return);
  }
  plan.engines = commit.engines & engines_;
  plans_[commit.plan] = std::move(plan);
  plans_.erase(plans_.begin(), plans_.lower_bound(follower_.oldest()));
  set_awaited(is_recovering());
  owner_.on_released();
  return absl::OkStatus();
}

void ControlPlane::tell_of(uint32_t plan, const AllocationChange& change) const {
  if (!options_.log->should_log(spdlog::level::debug)) return;
  options_.log->debug("takes plan {}: messages of {} go as {}, algorithm {}", plan,
                      sizes_of(change.size_class), shares_of(names_, change.allocation),
                      algorithm_name(change.algorithm));
}

// A rank that is gone or has closed the context takes part in no further operations, so nothing
// remains to be agreed on.
void ControlPlane::on_peer_gone(int rank, const absl::Status& why) {
  if (absl::IsInvalidArgument(why)) {  // the rank is there, but has violated the protocol
    return owner_.on_failed(absl::InternalError(
        absl::StrCat("rank ", rank, " does not follow the protocol: ", why.message())));
  }
  options_.log->debug("load balancing has ended: {}", std::string(why.message()));
  if (is_recovering() || (coordinator_ != nullptr && coordinator_->is_recovering())) {
    return owner_.on_failed(absl::UnavailableError(absl::StrCat(
        "an engine is lost, and going on without it needs all ranks: ", why.message())));
  }
  is_over_ = true;
  if (coordinator_ != nullptr) return coordinator_->lose(rank);
  if (!follower_.is_waiting()) return;
  follower_.give_up_step();
  owner_.on_released();
}

void ControlPlane::set_awaited(bool is_awaited) {
  for (auto& [rank, stream] : peers_) stream->set_awaited(is_awaited);
}

// ---- What is seen ------------------------------------------------------------------------------

std::string ControlPlane::why_held() const {
  if (coordinator_ == nullptr) return "rank 0 has not yet said by which plan the operation runs";
  return absl::StrCat("the operation runs by a new plan once rank ",
                      absl::StrJoin(coordinator_->missing(), ", "), " has answered");
}

std::optional<DataLengthTable> ControlPlane::learned() const {
  if (coordinator_ == nullptr || !saves_) return std::nullopt;
  return coordinator_->learned();
}

DataLengthTable ControlPlane::table() const {
  if (coordinator_ != nullptr) return coordinator_->table();
  DataLengthTable table;
  table.lanes = names_;
  const auto current = plans_.find(follower_.current());
  if (current == plans_.end()) return table;
  for (const auto& [size_class, entry] : current->second.classes) {
    table.entries[size_class].allocation = entry.allocation;
    table.entries[size_class].number = entry.number;
    table.entries[size_class].algorithm = entry.algorithm;
  }
  return table;
}

}  // namespace nezha
