// SPDX-License-Identifier: Apache-2.0
#include "context/planner.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <limits>
#include <map>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "collectives/hosts/choice.h"
#include "context/split.h"
#include "control/table_file.h"

namespace nezha {
namespace {

// How long the set-up waits for a record. All were there when the first operation was over.
constexpr Nanos kRecordTime = 5 * kSecond;
// How long a rail that failed between two ranks counts as down for operations of other pairs.
constexpr Nanos kRemembered = 30 * kSecond;

// A barrier is planned as an operation of one byte.
size_t planned_bytes(const Operation& op) {
  return op.collective == Collective::kBarrier ? 1 : op.bytes();
}

bool is_allreduce(const Operation& op) { return op.collective == Collective::kAllreduce; }

// If an engine that can be lost carries the operation, every rank keeps the result (in scratch if
// the caller has no output), so that any rank can supply it to another during recovery. A barrier's
// result is one dummy byte.
void give_output(Operation& op, BufferPool& pool, Buffer& scratch) {
  if (op.output != nullptr) return;
  op.elements = planned_bytes(op) / op.element_size;
  scratch = pool.take(op.bytes());
  op.output = scratch.data();
  if (op.collective != Collective::kBarrier) return;
  *op.output = {};
  op.input = op.output;
}

// Reports before a run begins if the table that it learns could not be written. This is for a first
// run, which has no table yet.
absl::Status check_folder_of_table(const std::string& path) {
  const size_t slash = path.rfind('/');
  const std::string folder = slash == std::string::npos ? "." : path.substr(0, slash + 1);
  if (eaccess(folder.c_str(), W_OK | X_OK) == 0) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("the data length table ", path, " could not be written: ", strerror(errno), " (",
                   folder, "); name a file in a folder that is there and may be written to"));
}

}  // namespace

Planner::Planner(const Setup& setup, Roster& roster, Engines& engines, HostsEngine& hosts,
                 const Operations& running, PlannerOwner& owner)
    : setup_(setup),
      roster_(roster),
      engines_(engines),
      hosts_(hosts),
      running_(running),
      owner_(owner),
      recovery_(setup, roster, engines, hosts, running,
                [&owner](const absl::Status& why) { owner.on_failed(why); }) {}

// ---- Setting up --------------------------------------------------------------------------------

absl::Status Planner::load_table() {
  const std::string& path = setup_.options.table;
  if (path.empty()) return absl::OkStatus();
  auto table = nezha::load_table(path);
  if (absl::IsNotFound(table.status())) return check_folder_of_table(path);
  if (!table.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat(std::string(table.status().message()), "; remove it, or name another file"));
  }
  table_ = *std::move(table);
  return absl::OkStatus();
}

void Planner::open() {
  engines_.open_switch(roster_.group(), *this);
  create_control();
}

void Planner::create_control() {
  const ContextOptions& given = setup_.options;
  const bool is_fixed = given.policy == BalancePolicy::kNone || given.plan == Plan::kStripe;
  if (setup_.size() == 1) return;
  if (is_fixed && !given.table.empty() && setup_.rank() == 0) {
    setup_.log->warn(
        "the data length table {} is not used, because this plan and policy learn nothing",
        given.table);
  }
  if (is_fixed && !setup_.is_switch_alone) {
    if (setup_.switch_rail) {
      setup_.log->warn(
          "the flare rail is not used: beside other rails it needs a plan other than stripe, and a "
          "policy other than none");
    }
    return;
  }
  const bool is_paper = given.policy == BalancePolicy::kPaper;
  ControlPlane::Options options;
  options.rank = setup_.rank();
  options.size = setup_.size();
  options.context = roster_.group().context;
  options.log = setup_.log;
  options.policy = *given.policy;
  options.has_stripes = (given.plan == Plan::kAuto && !is_paper) || setup_.is_switch_alone;
  options.has_engines = !engines_.empty();
  options.takes_engine_alone = setup_.is_switch_alone;
  options.tries_algorithms =
      setup_.algorithm == Algorithm::kAuto && !setup_.is_switch_alone && !is_paper;
  if (setup_.rank() == 0) options.table_path = given.table;
  options.table = table_;
  ControlPlaneOwner& owner = *this;
  control_ = std::make_unique<ControlPlane>(setup_.progress(), owner, std::move(options));
}

// Runs on the starter's thread, since it asks the store. Each call connects one rank only, since
// operations may wait for that thread.
void Planner::set_up() {
  absl::Status status = control_->is_idle() ? find_lanes() : absl::OkStatus();
  const int rank = setup_.rank() == 0 ? ++connected_ : 0;
  bool is_known = false;
  {
    Progress::Guard guard(setup_.progress());
    is_known = roster_.knows(rank);
  }
  if (status.ok() && !is_known) status = roster_.resolve(rank, now() + kRecordTime);
  if (!status.ok()) {
    setup_.log->warn("load balancing does not start: {}", std::string(status.message()));
    return;
  }
  Progress::Guard guard(setup_.progress());
  if (is_stopped_) return;
  Channel& channel = *roster_.channel(rank);
  control_->connect(rank, channel);
  if (engines_.flare() != nullptr) engines_.flare()->connect(rank, channel);
  if (setup_.rank() == 0 && rank + 1 < setup_.size()) owner_.on_set_up_wanted();
  setup_.progress().run_deferred();
}

// Reads rank 0's rails, in the order of their names, and finds the rail of this rank that matches
// each of them.
absl::Status Planner::find_lanes() {
  const Record own = roster_.own_record();
  const auto coordinator =
      setup_.rank() == 0 ? absl::StatusOr<Record>(own) : roster_.read(0, now() + kRecordTime);
  if (!coordinator.ok()) return coordinator.status();
  const auto pairs = pair_rails(coordinator->rails(), own.rails());  // rank 0's name to this rank's
  if (static_cast<int>(coordinator->devices.size()) + engines_.count() + 1 > kMaxLanes) {
    return absl::OutOfRangeError(
        absl::StrCat("rank 0 has ", coordinator->devices.size(),
                     " rails; the load balancer can divide messages among ",
                     kMaxLanes - engines_.count() - 1, " at most"));
  }
  Progress::Guard guard(setup_.progress());
  std::map<std::string, RailMask> by_name;
  for (const Rail rail : setup_.rails) {
    by_name[setup_.endpoint->device(rail)->name()] = rail_bit(rail);
  }
  std::vector<std::string> names;
  std::vector<RailMask> rails;
  for (const auto& [name, address] : coordinator->devices) {
    const auto here = pairs.find(name);
    names.push_back(name);
    rails.push_back(here == pairs.end() ? 0 : by_name[here->second]);
  }
  control_->set_lanes(names, rails, engines_.names());
  engines_.set_first_lane(control_->first_engine());
  const flare::FlareEngine* flare = engines_.flare();
  if (flare != nullptr && !flare->is_up()) control_->begin_without(engines_.lane_of(*flare));
  return absl::OkStatus();
}

double Planner::rate(RailMask rails, bool also_tried) const {
  double rate = 0;
  for (const Rail rail : setup_.rails) {
    if ((rails & rail_bit(rail)) == 0) continue;
    Device& device = *setup_.endpoint->device(rail);
    const double learned = device.counters().rate;
    // While bursts take part of the rail, the learned rate is too low.
    const bool counts_trial =
        also_tried && (learned == 0 || device.trial().has_disturbed(now() - kSecond, now()));
    rate += counts_trial ? std::max(learned, device.trial().rate()) : learned;
  }
  return rate;
}

// ---- The end -----------------------------------------------------------------------------------

void Planner::stop() {
  is_stopped_ = true;
  recovery_.stop();
}

void Planner::close() {
  if (control_ != nullptr) learned_ = control_->learned();
  control_.reset();
  recovery_.clear();
  engines_.close_switch();
}

void Planner::save() const {
  if (!learned_) return;
  const absl::Status saved = save_table(*learned_, setup_.options.table);
  if (!saved.ok()) setup_.log->error("{}", std::string(saved.message()));
}

// ---- Operations --------------------------------------------------------------------------------

// Allreduces are planned, and other operations that an engine can do. All of these are over only
// when all ranks have started them, as plan_agreement.h requires. Reduces and broadcasts that the
// hosts carry out need a gate for that.
bool Planner::is_planned(const Operation& operation) {
  if (control_ == nullptr || operation.tag == kOwnTag) return false;
  if (!control_->covers(planned_bytes(operation))) return false;
  return is_allreduce(operation) || engines_.can_do(operation);
}

std::optional<Assignment> Planner::assign(const RunningOperation& operation) {
  const Request& request = operation.request();
  const Operation& op = request.operation;
  Assignment assignment;
  if (!is_planned(op)) {
    assignment.slices = unlearned_slices(request);
    return assignment;
  }
  const auto split = control_->start(op.id(), planned_bytes(op));
  if (!split) return std::nullopt;
  assignment.plan = split->plan;
  assignment.number = split->number;
  const bool is_rooted =
      op.collective == Collective::kReduce || op.collective == Collective::kBroadcast;
  if (is_rooted) assignment.gate = &hosts_;
  if (split->allocation.empty()) {
    assignment.slices = unlearned_slices(request);
    return assignment;
  }
  Operation carried = op;
  if (!is_allreduce(op)) give_output(carried, *roster_.group().pool, assignment.scratch);
  // Slices of an engine name the algorithm, too: if the engine is lost, the hosts carry them, and
  // all ranks must use the same algorithm, whether they had begun the operation or not.
  const bool may_be_other = request.is_by_size &&
                            split->algorithm == rival(setup_.size(), op.bytes()) &&
                            split->algorithm != Algorithm::kAuto;
  uint32_t begin = 0;
  for (int lane = 0; lane < control_->lanes(); ++lane) {
    const uint32_t share = split->allocation[static_cast<size_t>(lane)];
    if (share == 0) continue;
    AssignedSlice assigned = planned_slice(*split, op, lane);
    assigned.slice.operation = carried;
    assigned.slice.bounds = {begin, begin + share};
    assigned.schedule = may_be_other ? schedule_kind(split->algorithm) : request.plan.schedule;
    assignment.slices.push_back(std::move(assigned));
    begin += share;
  }
  return assignment;
}

// Returns a slice with the rails and the engine that carry the lane.
AssignedSlice Planner::planned_slice(const ControlPlane::PlannedSplit& split, const Operation& op,
                                     int lane) const {
  AssignedSlice assigned;
  assigned.slice.lane = static_cast<uint8_t>(lane);
  const RailMask all = roster_.group().rails;
  Engine* engine = engines_.of_lane(lane);
  // If rank 0 has one rail, other ranks may still have more.
  const bool is_all = engine != nullptr || control_->lanes() == 1;
  assigned.slice.rails = is_all ? all : control_->rails(lane) & all;
  // The hosts carry the lane of a lost engine, but only once the operations that the engine had
  // begun are repaired.
  const bool may_be_engines = engine != nullptr && engines_.can_do(*engine, op);
  const bool waits = may_be_engines && contains(split.waits, lane);
  const bool is_taken = may_be_engines && contains(split.engines, lane);
  assigned.engine = waits ? nullptr : is_taken ? engine : &hosts_;
  return assigned;
}

// Divides the operation as the options say.
AssignedSlices Planner::unlearned_slices(const Request& request) const {
  const Operation& op = request.operation;
  const ScheduleKind schedule = request.plan.schedule;
  // Vectors of blocks go as stripes, because slices of their blocks would not be contiguous.
  if (setup_.options.plan != Plan::kSlice || setup_.size() == 1 || op.blocks != nullptr) {
    return {{{op, {}, 0, roster_.group().rails}, &hosts_, schedule}};
  }
  const std::vector<double>& shares = setup_.options.shares;
  AssignedSlices slices;
  const double total = std::accumulate(shares.begin(), shares.end(), 0.0);
  double sum = 0;
  uint32_t begin = 0;
  for (size_t i = 0; i < setup_.rails.size(); ++i) {
    sum += shares[i];
    const auto end = i + 1 == setup_.rails.size()
                         ? SliceBounds::kWhole
                         : static_cast<uint32_t>(sum / total * SliceBounds::kWhole);
    if (end == begin) continue;  // the rail is a spare, or its share rounds to nothing
    slices.push_back({{op, {begin, end}, static_cast<uint8_t>(i), rail_bit(setup_.rails[i])},
                      &hosts_,
                      schedule});
    begin = end;
  }
  return slices;
}

void Planner::note_disturbance(RunningOperation& operation) {
  // The shuffle policy ignores times.
  if (control_ == nullptr || setup_.options.policy == BalancePolicy::kShuffle) return;
  for (const auto& other : running_) {
    if (other.get() == &operation || !other->has_started()) continue;
    other->set_disturbed();
    operation.set_disturbed();
  }
}

void Planner::measure(const RunningOperation& operation) {
  const Operation& op = operation.request().operation;
  if (is_planned(op)) {
    control_->finish(op.id());
    if (!is_stopped_) measure_lanes(operation);
  }
  last_over_ = {now(), is_allreduce(op) ? std::optional(size_class_of(op.bytes())) : std::nullopt};
}

void Planner::measure_lanes(const RunningOperation& operation) {
  const Request& request = operation.request();
  const Operation& op = request.operation;
  if (is_allreduce(op) && !request.is_by_size) control_->saw_named(op.bytes());
  if (control_->is_idle()) return want_set_up(op);
  control_->set_down(failed_rails(operation));
  // Plans are made for allreduces, so only the times of allreduces matter.
  if (!is_allreduce(op)) return;
  const int lanes = control_->lanes();
  control_->add({op.id(), op.bytes(), operation.allocation_number(),
                 was_beside_bursts(operation) ? LaneTimes(static_cast<size_t>(lanes))
                                              : operation.lane_times(lanes),
                 idle_before(operation)});
}

// Asks for the set-up, once, if there is something to learn. All ranks are there by now, since an
// operation of all ranks is over.
void Planner::want_set_up(const Operation& op) {
  const int lanes = static_cast<int>(setup_.rails.size()) + engines_.count();
  if (has_wanted_set_up_ || !control_->is_worthwhile(lanes, planned_bytes(op))) return;
  has_wanted_set_up_ = true;
  owner_.on_set_up_wanted();
}

// Returns whether a rate trial has sent bursts over the operation's rails while it ran, which slows
// it.
bool Planner::was_beside_bursts(const RunningOperation& operation) const {
  const RailMask rails = operation.rails();
  return std::any_of(setup_.rails.begin(), setup_.rails.end(), [&](Rail rail) {
    return (rails & rail_bit(rail)) != 0 &&
           setup_.endpoint->device(rail)->trial().has_disturbed(operation.started_at(), now());
  });
}

Nanos Planner::idle_before(const RunningOperation& operation) const {
  const SizeClass size_class = size_class_of(operation.request().operation.bytes());
  if (last_over_.size_class != size_class) return std::numeric_limits<Nanos>::max();
  return std::max<Nanos>(0, operation.started_at() - last_over_.at);
}

// Returns the rails on which a link to one of the operation's peers went down, loses much, or has
// not come up for long. Rails that failed for peers of other operations count for kRemembered:
// each algorithm has its own peers, and lanes should not come and go with the sizes of messages.
// Other ranks are not looked at, because links to them are made again only when they are needed.
RailMask Planner::failed_rails(const RunningOperation& operation) {
  const Group& group = roster_.group();
  seen_.resize(group.channels.size());
  const Request& request = operation.request();
  for (const int peer : hosts_.known_peers(group, request.operation, request.plan.schedule)) {
    const Channel* channel = roster_.channel(peer);
    if (channel == nullptr) continue;
    RailMask& seen = seen_[static_cast<size_t>(peer)];
    seen |= channel->up();
    const RailMask failed = (seen & ~channel->preferred()) | channel->long_missing();
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

// ---- Engines that can be lost ------------------------------------------------------------------

void Planner::lose_engine(const Engine& engine) {
  if (control_ != nullptr && !control_->is_idle()) control_->lose_engine(engines_.lane_of(engine));
}

void Planner::regain_engine(const Engine& engine) {
  if (control_ != nullptr && !control_->is_idle()) {
    control_->regain_engine(engines_.lane_of(engine));
  }
}

absl::Status Planner::on_recover(int lane, uint32_t epoch, const std::vector<Repair>& repairs) {
  absl::Status status = recovery_.recover(lane, epoch, repairs);
  if (!status.ok() || is_stopped_) return status;
  // The engine may have come back before rank 0's answer arrived.
  const flare::FlareEngine* flare = engines_.flare();
  if (flare != nullptr && flare->is_up()) control_->regain_engine(lane);
  return absl::OkStatus();
}

// ---- What is seen ------------------------------------------------------------------------------

BalanceStats Planner::balance() const {
  BalanceStats stats;
  if (control_ == nullptr) return stats;
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
    if (setup_.rank() != 0) continue;
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
