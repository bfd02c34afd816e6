// SPDX-License-Identifier: Apache-2.0
// By which plan the operations of a context run, and what they tell of it.
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <limits>
#include <map>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "collectives/hosts/choice.h"
#include "collectives/signature.h"
#include "context/context_impl.h"
#include "context/raise.h"
#include "context/split.h"
#include "control/table_file.h"

namespace nezha {
namespace {

// How long the set-up waits for a record. All were there when the first operation was over.
constexpr Nanos kRecordTime = 5 * kSecond;
// For how long a rail that failed between two ranks is down for operations by other pairs of ranks.
constexpr Nanos kRemembered = 30 * kSecond;

// A barrier is planned as the smallest of operations.
size_t planned_bytes(const Operation& op) {
  return op.collective == Collective::kBarrier ? 1 : op.bytes();
}

// What an engine that can be lost carries has its result on all ranks, so that any of them can give
// it to another: in scratch, where the caller wants none. A barrier's is a byte that says nothing.
void give_output(Operation& op, BufferPool& pool, Buffer& scratch) {
  if (op.output != nullptr) return;
  op.elements = planned_bytes(op) / op.element_size;
  scratch = pool.take(op.bytes());
  op.output = scratch.data();
  if (op.collective != Collective::kBarrier) return;
  *op.output = {};
  op.input = op.output;
}

// The first run's: it is to be seen before the run whether what it learns can be kept.
absl::Status check_folder_of_table(const std::string& path) {
  const size_t slash = path.rfind('/');
  const std::string folder = slash == std::string::npos ? "." : path.substr(0, slash + 1);
  if (eaccess(folder.c_str(), W_OK | X_OK) == 0) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("the data length table ", path, " could not be written: ", strerror(errno), " (",
                   folder, "); name a file in a folder that is there and may be written to"));
}

}  // namespace

// ---- Setting up --------------------------------------------------------------------------------

absl::Status ContextImpl::load_table() {
  if (options_.table.empty()) return absl::OkStatus();
  auto table = nezha::load_table(options_.table);
  if (absl::IsNotFound(table.status())) return check_folder_of_table(options_.table);
  if (!table.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat(std::string(table.status().message()), "; remove it, or name another file"));
  }
  table_ = *std::move(table);
  return absl::OkStatus();
}

void ContextImpl::save(const DataLengthTable& table) const {
  const absl::Status saved = save_table(table, options_.table);
  if (!saved.ok()) log_->error("{}", std::string(saved.message()));
}

void ContextImpl::create_control() {
  const bool is_fixed = options_.policy == BalancePolicy::kNone || options_.plan == Plan::kStripe;
  if (options_.size == 1) return;
  if (is_fixed && !options_.table.empty() && options_.rank == 0) {
    log_->warn("the data length table {} is not used: by this plan and policy nothing is learned",
               options_.table);
  }
  if (is_fixed && !is_switch_alone_) {
    if (switch_rail_) {
      log_->warn(
          "the flare rail stays unused: beside other rails it takes a plan other than stripe, "
          "and a policy other than none");
    }
    return;
  }
  ControlPlane::Options options;
  options.rank = options_.rank;
  options.size = options_.size;
  options.context = group_.context;
  options.log = log_;
  options.policy = *options_.policy;
  options.has_stripes =
      (options_.plan == Plan::kAuto && options_.policy != BalancePolicy::kPaper) ||
      is_switch_alone_;
  options.has_engines = !engines_.empty();
  options.takes_engine_alone = is_switch_alone_;
  options.tries_algorithms = algorithm_ == Algorithm::kAuto && !is_switch_alone_ &&
                             options.policy != BalancePolicy::kPaper;
  if (options_.rank == 0) options.table_path = options_.table;
  options.table = table_;
  ControlPlaneOwner& owner = *this;
  control_ = std::make_unique<ControlPlane>(endpoint_->progress(), owner, std::move(options));
}

bool ContextImpl::is_known(int rank) {
  Progress::Guard guard(endpoint_->progress());
  return group_.channels[static_cast<size_t>(rank)] != nullptr;
}

// By a thread of the context's own, since it asks the store; one rank at a time, since operations
// may wait for that thread.
void ContextImpl::set_up_control() {
  absl::Status status = control_->is_idle() ? find_lanes() : absl::OkStatus();
  const int rank = options_.rank == 0 ? ++connected_ : 0;
  if (status.ok() && !is_known(rank)) status = resolve(rank, now() + kRecordTime);
  if (!status.ok()) {
    log_->warn("no balancing: {}", std::string(status.message()));
    return;
  }
  Progress::Guard guard(endpoint_->progress());
  if (!broken_.ok() || closing_) return;
  Channel& channel = *group_.channels[static_cast<size_t>(rank)];
  control_->connect(rank, channel);
  if (flare_ != nullptr) flare_->connect(rank, channel);
  wants_control_ = options_.rank == 0 && rank + 1 < options_.size;
  endpoint_->progress().run_deferred();
}

// The coordinator's rails in the order of their names, and what each of them is here.
absl::Status ContextImpl::find_lanes() {
  const Record own = own_record();
  const auto coordinator =
      options_.rank == 0 ? absl::StatusOr<Record>(own) : read_record(0, now() + kRecordTime);
  if (!coordinator.ok()) return coordinator.status();
  const auto pairs = pair_rails(coordinator->rails(), own.rails());  // its names to those here
  if (coordinator->devices.size() + engines_.size() + 1 > kMaxLanes) {
    return absl::OutOfRangeError(
        absl::StrCat(coordinator->devices.size(), " rails are more than it can look at"));
  }
  Progress::Guard guard(endpoint_->progress());
  std::map<std::string, RailMask> by_name;
  for (const Rail rail : rails_) by_name[endpoint_->device(rail)->name()] = rail_bit(rail);
  std::vector<std::string> names;
  std::vector<RailMask> rails;
  for (const auto& [name, address] : coordinator->devices) {
    const auto here = pairs.find(name);
    names.push_back(name);
    rails.push_back(here == pairs.end() ? 0 : by_name[here->second]);
  }
  std::vector<std::string> engines;
  for (const auto& [name, engine] : engines_) engines.push_back(name);
  control_->set_lanes(names, rails, engines);
  if (flare_ != nullptr && !flare_->is_up()) control_->begin_without(lane_of(*flare_));
  return absl::OkStatus();
}

double ContextImpl::rate(RailMask rails, bool also_tried) const {
  double rate = 0;
  for (const Rail rail : rails_) {
    if ((rails & rail_bit(rail)) == 0) continue;
    Device& device = *endpoint_->device(rail);
    const double learned = device.counters().rate;
    // What is learned while bursts take their part of the rail is too low.
    const bool counts_trial =
        also_tried && (learned == 0 || device.trial().has_disturbed(now() - kSecond, now()));
    rate += counts_trial ? std::max(learned, device.trial().rate()) : learned;
  }
  return rate;
}

// ---- Operations --------------------------------------------------------------------------------

// Allreduces, and what else an engine can do. All of these are over only when all ranks have
// started them, as plan_agreement.h wants it: the hosts' reduces and broadcasts by a gate.
bool ContextImpl::is_planned(const Operation& operation) {
  if (control_ == nullptr || operation.tag == kOwnTag) return false;
  if (!control_->covers(planned_bytes(operation))) return false;
  return operation.collective == Collective::kAllreduce ||
         std::any_of(engines_.begin(), engines_.end(),
                     [&](const auto& entry) { return can_do(*entry.second, operation); });
}

// None: it is to be held.
std::optional<RunningOperation::Course> ContextImpl::course(const RunningOperation& operation) {
  const Operation& op = operation.request().operation;
  RunningOperation::Course course;
  if (!is_planned(op)) {
    course.parts = unlearned_parts(op);
    return course;
  }
  const auto found = control_->start(operation.id(), planned_bytes(op));
  if (!found) return std::nullopt;
  course.plan = found->plan;
  course.number = found->number;
  const bool is_rooted =
      op.collective == Collective::kReduce || op.collective == Collective::kBroadcast;
  if (is_rooted) course.gate = &hosts_;
  if (found->allocation.empty()) {
    course.parts = unlearned_parts(op);
    return course;
  }
  Operation carried = op;
  if (op.collective != Collective::kAllreduce) give_output(carried, *group_.pool, course.scratch);
  // An engine's parts have it too: where the engine is lost, some ranks go on by the hosts, and
  // others begin by them.
  const bool may_be_other =
      operation.request().is_by_size && found->algorithm == rival(options_.size, op.bytes());
  const Algorithm algorithm = may_be_other ? found->algorithm : Algorithm::kAuto;
  uint32_t begin = 0;
  for (int lane = 0; lane < control_->lanes(); ++lane) {
    const uint32_t share = found->allocation[static_cast<size_t>(lane)];
    if (share == 0) continue;
    Slice slice{carried, {begin, begin + share}, static_cast<uint8_t>(lane)};
    begin += share;
    Engine* engine = engine_of(lane);
    const bool is_engines = engine != nullptr;
    // Where rank 0 has one rail, others may have more.
    const bool is_all = is_engines || control_->lanes() == 1;
    slice.rails = is_all ? group_.rails : control_->rails(lane) & group_.rails;
    // Without its engine the hosts carry it, but not before what it had begun is repaired.
    const bool may_be_engines = is_engines && can_do(*engine, op);
    const bool waits = may_be_engines && contains(found->waits, lane);
    const bool is_taken = may_be_engines && contains(found->engines, lane);
    course.parts.push_back({slice, waits ? nullptr : is_taken ? engine : &hosts_, algorithm});
  }
  return course;
}

// By what the options say.
std::vector<RunningOperation::Course::Part> ContextImpl::unlearned_parts(
    const Operation& operation) {
  // Blocks of a vector go by stripes: their slices would not follow each other.
  if (options_.plan != Plan::kSlice || options_.size == 1 || operation.blocks != nullptr) {
    return {{{operation, {}, 0, group_.rails}, &hosts_, Algorithm::kAuto}};
  }
  const std::vector<double>& shares = options_.shares;
  std::vector<RunningOperation::Course::Part> parts;
  const double total = std::accumulate(shares.begin(), shares.end(), 0.0);
  double sum = 0;
  uint32_t begin = 0;
  for (size_t i = 0; i < rails_.size(); ++i) {
    sum += shares[i];
    const auto end = i + 1 == rails_.size()
                         ? SliceBounds::kWhole
                         : static_cast<uint32_t>(sum / total * SliceBounds::kWhole);
    parts.push_back({{operation, {begin, end}, static_cast<uint8_t>(i), rail_bit(rails_[i])},
                     &hosts_,
                     Algorithm::kAuto});
    begin = end;
  }
  return parts;
}

// Operations that run side by side tell of each other, not of the lanes.
void ContextImpl::note_disturbance(RunningOperation& operation) {
  // Shuffling looks at no times.
  if (control_ == nullptr || options_.policy == BalancePolicy::kShuffle) return;
  for (const auto& other : running_) {
    if (other.get() == &operation || !other->has_started()) continue;
    other->set_disturbed();
    operation.set_disturbed();
  }
}

void ContextImpl::measure(const RunningOperation& operation) {
  const auto& request = operation.request();
  if (!is_planned(request.operation)) return;
  const OperationId id = operation.id();
  control_->finish(id);
  if (!broken_.ok()) return;
  const bool is_allreduce = request.operation.collective == Collective::kAllreduce;
  if (is_allreduce && !request.is_by_size) control_->saw_named(request.operation.bytes());
  if (control_->is_idle()) {
    // All ranks are there, and there is something to learn.
    const auto lanes = static_cast<int>(rails_.size() + engines_.size());
    if (!has_wanted_control_ && control_->is_worthwhile(lanes, planned_bytes(request.operation))) {
      has_wanted_control_ = true;
      wants_control_ = true;
      wake_starter();
    }
    return;
  }
  control_->set_down(failed_rails(operation));
  // What the others take says nothing of the plans, which are made for allreduces.
  if (!is_allreduce) return;
  const int lanes = control_->lanes();
  control_->add({id, request.operation.bytes(), operation.allocation_number(),
                 was_beside_bursts(operation) ? std::vector<Nanos>(static_cast<size_t>(lanes))
                                              : operation.lane_times(lanes),
                 idle_before(operation)});
}

// What tries the rails' rates is in the way of what runs meanwhile.
bool ContextImpl::was_beside_bursts(const RunningOperation& operation) const {
  const RailMask rails = operation.rails();
  return std::any_of(rails_.begin(), rails_.end(), [&](Rail rail) {
    return (rails & rail_bit(rail)) != 0 &&
           endpoint_->device(rail)->trial().has_disturbed(operation.started_at(), now());
  });
}

Nanos ContextImpl::idle_before(const RunningOperation& operation) const {
  const SizeClass size_class = size_class_of(operation.request().operation.bytes());
  if (last_over_.size_class != size_class) return std::numeric_limits<Nanos>::max();
  return std::max<Nanos>(0, operation.started_at() - last_over_.at);
}

// The rails on which a link is down that was up, or loses much, or has not come up for long, to one
// of the ranks that this operation was carried out with, or another one lately: each algorithm has
// its own peers, and lanes are not to come and go with the sizes of messages. To others links are
// not made again before they are needed.
RailMask ContextImpl::failed_rails(const RunningOperation& operation) {
  seen_.resize(group_.channels.size());
  const auto& request = operation.request();
  for (const int peer : hosts_.peers(group_, request.operation, request.plan)) {
    const auto rank = static_cast<size_t>(peer);
    const Channel* channel = group_.channels[rank];
    if (channel == nullptr) continue;
    seen_[rank] |= channel->up();
    const RailMask failed = (seen_[rank] & ~channel->preferred()) | channel->long_missing();
    if (failed != 0) {
      failed_[peer] = {failed, now()};
    } else {
      failed_.erase(peer);
    }
  }
  if (failed_.empty()) return 0;
  const Nanos time = now();
  absl::erase_if(failed_, [time](const auto& it) { return time - it.second.at > kRemembered; });
  RailMask all = 0;
  for (const auto& [peer, failed] : failed_) all |= failed.rails;
  return all;
}

// ---- ControlPlaneOwner -------------------------------------------------------------------------

bool ContextImpl::has_started(const OperationId& operation) const {
  if (!roll_call_.has_entered(operation.tag, operation.ordinal)) return false;
  const auto is_it = [&](const auto& waiting) {
    const auto& request = waiting->request();
    return request.operation.tag == operation.tag && request.operation.ordinal == operation.ordinal;
  };
  return std::none_of(to_start_.begin(), to_start_.end(), is_it) &&
         std::none_of(held_.begin(), held_.end(), is_it);
}

void ContextImpl::on_released() {
  for (const auto& operation : std::exchange(held_, {})) {
    if (!operation->over()) launch(operation);
  }
}

void ContextImpl::on_nonsense(const absl::Status& why) { on_operation_failed(why); }

// ---- What is seen ------------------------------------------------------------------------------

BalanceStats ContextImpl::balance() const {
  BalanceStats stats;
  if (control_ == nullptr) return stats;
  Progress::Guard guard(endpoint_->progress());
  const DataLengthTable table = control_->table();
  stats.lanes = table.lanes;
  for (const auto& [size_class, entry] : table.entries) {
    SizeClassStats& known = stats.classes.emplace_back();
    known.least_bytes = uint64_t{1} << size_class;
    for (const uint32_t part : entry.allocation) {
      known.shares.push_back(static_cast<double>(part) / SliceBounds::kWhole);
    }
    known.number = entry.number;
    if (entry.algorithm != Algorithm::kAuto) known.algorithm = algorithm_name(entry.algorithm);
    if (options_.rank != 0) continue;
    known.state = std::string(name_of(entry.state));
    known.is_trying = entry.is_probed();
    for (const Nanos time : entry.times) {
      known.lane_us.push_back(static_cast<double>(time) / kMicrosecond);
    }
    known.windows = entry.windows;
    known.bytes = entry.bytes;
    known.history = table.history(size_class);
  }
  return stats;
}

}  // namespace nezha
