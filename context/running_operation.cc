// SPDX-License-Identifier: Apache-2.0
#include "context/running_operation.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/out_of_memory.h"
#include "context/blocks.h"
#include "context/lost_ranks.h"
#include "context/raise.h"
#include "context/repair.h"
#include "nezha/errors.h"

namespace nezha {
namespace {

// How often an operation that takes long tells all ranks what it is.
constexpr Nanos kSlow = 500 * kMillisecond;
// How long before its deadline an operation asks which ranks have not entered it.
constexpr Nanos kRollCallTime = 200 * kMillisecond;
// A size in bytes. The waiter for a shorter message is keen (see Pace): such a message takes one
// rail and comes in one piece.
constexpr size_t kKeen = 8 << 10;

}  // namespace

RunningOperation::RunningOperation(RunningOperationOwner& owner, const Setup& setup,
                                   Request request)
    : owner_(&owner),
      progress_(setup.progress()),
      endpoint_(setup.endpoint),
      rank_of_(setup.rank_of),
      request_(std::move(request)),
      slow_(progress_, [this] { on_slow(); }),
      deadline_(progress_, [this] { on_deadline(); }) {
  if (request_.function != nullptr) request_.operation.function = &request_.function;
}

void RunningOperation::begin(uint64_t ordinal) {
  request_.operation.ordinal = ordinal;
  const Nanos time = now();
  const Nanos left = std::max<Nanos>(0, request_.deadline - time);
  overdue_at_ = request_.deadline - std::min(left / 4, kRollCallTime);
  // Other ranks are not told of slow sends and receives, of which there may be thousands.
  const Nanos is_slow_at = request_.exchange != nullptr ? overdue_at_ : time + kSlow;
  slow_.start(std::min(is_slow_at, overdue_at_));
}

void RunningOperation::start(const Group& group, Assignment assignment) {
  waits_for({});
  request_.plan.version = assignment.plan;
  number_ = assignment.number;
  scratch_ = std::move(assignment.scratch);
  gate_ = assignment.gate;
  started_at_ = now();
  hold_memory(group.rank);
  parts_.reserve(assignment.slices.size() + (gate_ == nullptr ? 0 : 1));
  for (const auto& [slice, engine, schedule] : assignment.slices) {
    Part& part = parts_.emplace_back();
    const Operation& op = slice.operation;
    part.slice = slice;
    part.engine = engine;
    part.schedule = schedule;
    part.is_empty = Partition(op.elements, op.element_size, 1).chunk(0, slice.bounds).length == 0;
    part.is_frozen = engine == nullptr;
    if (!part.is_frozen && !start_task(group, plan_of(part), part)) return;
  }
  if (!start_gate(group)) return;
  started_ = true;
  finish_if_done();
}

void RunningOperation::hold_memory(int rank) {
  const Operation& op = request_.operation;
  if (request_.exchange != nullptr) {
    const Exchange::Terms& terms = request_.exchange->terms();
    input_ = Hold(terms.input, terms.bytes);
    output_ = Hold(terms.output, terms.bytes);
    return;
  }
  const bool has_blocks = op.blocks != nullptr;
  input_ = Hold(op.input, has_blocks ? input_bytes(op, rank) : op.bytes());
  output_ = Hold(op.output, has_blocks ? output_bytes(op, rank) : op.bytes());
}

// Returns false if the operation has failed.
bool RunningOperation::start_task(const Group& group, const EnginePlan& plan, Part& part) {
  auto task = part.engine->start(group, part.slice, plan, *this);
  if (!task.ok()) {
    owner_->on_failed(task.status());
    return false;
  }
  part.task = *std::move(task);
  if (part.task->poll() == Task::State::kDone) part.finished_at = now();
  if (part.task->poll() == Task::State::kLost) {
    owner_->on_engine_lost(part.slice.lane);
  }
  if (over()) {  // the operation failed at once
    part.task->freeze();
    return false;
  }
  return true;
}

// Starts the gate if one is needed, as soon as the hosts carry all parts. A switch needs none: its
// part is over only when all ranks have started it. Returns false if the operation has failed.
bool RunningOperation::start_gate(const Group& group) {
  const bool is_needed =
      gate_ != nullptr && std::all_of(parts_.begin(), parts_.end(), [this](const Part& part) {
        return part.is_empty || part.engine == gate_;
      });
  if (!is_needed) return true;
  Part& gate = parts_.emplace_back();
  gate.engine = std::exchange(gate_, nullptr);
  gate.schedule = ScheduleKind::kDissemination;
  gate.is_empty = true;
  gate.slice.lane = kGateLane;
  gate.slice.rails = group.rails;
  Operation& op = gate.slice.operation;
  op.collective = Collective::kBarrier;
  op.element_size = 1;
  op.tag = request_.operation.tag;
  op.ordinal = request_.operation.ordinal;
  return start_task(group, plan_of(gate), gate);
}

RailMask RunningOperation::rails() const {
  RailMask rails = 0;
  for (const Part& part : parts_) {
    if (!part.is_empty) rails |= part.slice.rails;
  }
  return rails;
}

LaneTimes RunningOperation::lane_times(int lanes) const {
  LaneTimes times(static_cast<size_t>(lanes));
  if (is_disturbed_) return times;
  for (const Part& part : parts_) {
    if (part.is_empty || part.slice.lane >= lanes) continue;
    times[part.slice.lane] = std::max<Nanos>(1, part.finished_at - started_at_);
  }
  return times;
}

// ---- An engine that is lost ---------------------------------------------------------------------

std::optional<FrozenPart> RunningOperation::freeze(const Engine& engine, int ranks) {
  for (Part& part : parts_) {
    if (part.engine != &engine || part.task == nullptr) continue;
    part.is_frozen = true;
    is_disturbed_ = true;
    FrozenPart frozen{id(), part.task->freeze(), {}};
    frozen.missing = difference(
        ranges_of(part.slice.operation, part.slice.bounds, part.schedule, ranks), frozen.final);
    part.is_final = frozen.missing.empty();
    return frozen;
  }
  return std::nullopt;
}

absl::Status RunningOperation::repair(Engine& hosts, const Group& group, int lane, uint32_t epoch,
                                      const Repair* repair, uint32_t number) {
  const auto found = std::find_if(parts_.begin(), parts_.end(), [&](const Part& candidate) {
    return candidate.is_frozen && candidate.slice.lane == lane;
  });
  const bool has_pieces = repair != nullptr && !repair->pieces.empty();
  if (found == parts_.end() && !has_pieces) return absl::OkStatus();  // nothing to repair here
  if (found == parts_.end()) return cannot_be_repaired();
  Part& part = *found;
  part.is_frozen = false;
  part.engine = &hosts;
  part.slice.rails = group.rails;
  const bool has_begun = part.task != nullptr;
  if (has_begun && repair == nullptr && part.is_final) {
    finish_if_done();
  } else if (!has_pieces && (repair == nullptr ? !has_begun : !part.is_final)) {
    if (start_task(group, plan_of(part), part) && start_gate(group)) finish_if_done();
  } else if (has_pieces && has_begun) {
    return start_pieces(hosts, group, epoch, *repair, number, Slice(part.slice), part.schedule);
  } else {
    return cannot_be_repaired();
  }
  return absl::OkStatus();
}

absl::Status RunningOperation::cannot_be_repaired() const {
  return absl::InvalidArgumentError(
      absl::StrCat("it asks for an impossible repair of ", request_.name()));
}

absl::Status RunningOperation::start_pieces(Engine& hosts, const Group& group, uint32_t epoch,
                                            const Repair& repair, uint32_t number,
                                            const Slice& slice, ScheduleKind schedule) {
  // The pieces replace the part. Bytes that are final here stay final, even if this rank sends them
  // to others.
  const auto is_it = [&](const Part& part) { return part.slice.lane == slice.lane; };
  parts_.erase(std::remove_if(parts_.begin(), parts_.end(), is_it), parts_.end());
  started_ = false;
  const size_t first = parts_.size();
  for (const Repair::Piece& piece : repair.pieces) {
    auto made = repair_slice(piece, number++, slice, schedule, group);
    if (!made.ok()) return made.status();
    Part& part = parts_.emplace_back();
    part.engine = &hosts;
    part.slice = made->slice;
    part.schedule = made->schedule;
  }
  for (size_t i = first; i < parts_.size(); ++i) {
    if (!start_task(group, {parts_[i].schedule, 0, epoch}, parts_[i])) return absl::OkStatus();
  }
  started_ = true;
  finish_if_done();
  return absl::OkStatus();
}

// ---- The end -----------------------------------------------------------------------------------

void RunningOperation::on_finished(Task& task) {
  if (task.poll() == Task::State::kFailed) return owner_->on_failed(task.status());
  for (Part& part : parts_) {
    if (part.task.get() != &task) continue;
    part.finished_at = now();
    if (task.poll() == Task::State::kLost) {
      return owner_->on_engine_lost(part.slice.lane);
    }
  }
  finish_if_done();
}

void RunningOperation::finish_if_done() {
  const bool done = started_ && std::all_of(parts_.begin(), parts_.end(),
                                            [](const Part& part) { return part.is_done(); });
  if (!done || over()) return;
  const Operation& op = request_.operation;
  const std::byte* result = op.output == nullptr ? op.input : op.output;
  const size_t bytes = request_.result ? request_.result.size() : op.bytes();
  for (std::byte* copy : request_.copies) std::memcpy(copy, result, bytes);
  finish();
}

void RunningOperation::fail(const absl::Status& why) {
  if (over()) return;
  for (Part& part : parts_) {
    if (part.task != nullptr) part.task->freeze();
  }
  status_ = why;
  finish();
}

void RunningOperation::finish() {
  slow_.cancel();
  deadline_.cancel();
  input_.release();
  output_.release();
  progress_.finish(waiter_);
  try {
    // Deferred, because one of the tasks may be calling.
    self_ = shared_from_this();
    progress_.defer([this] { give_back(); });
  } catch (const std::bad_alloc&) {
    self_.reset();  // the tasks and buffers are released with the handle instead
  }
  if (const auto function = std::exchange(when_over_, nullptr)) function();
  std::exchange(owner_, nullptr)->on_operation_over(*this);
}

void RunningOperation::give_back() {
  const auto self = std::exchange(self_, nullptr);
  parts_.clear();
  scratch_.reset();
  request_.read.reset();
  request_.result.reset();
}

void RunningOperation::on_slow() {
  const Nanos time = now();
  if (time < overdue_at_) {
    slow_.start(std::min(time + kSlow, overdue_at_));
    owner_->on_operation_slow(*this);
  } else {
    // A rank that has lost all rails to a peer reports slightly before the deadline, so that all
    // ranks get the informative error instead of a bare timeout.
    const Nanos early = owner_->is_cut_off() ? (request_.deadline - overdue_at_) / 2 : 0;
    deadline_.start(request_.deadline - early);
    owner_->on_operation_overdue(*this);
  }
}

void RunningOperation::on_deadline() {
  if (now() < request_.deadline && !owner_->is_cut_off()) {
    return deadline_.start(request_.deadline);
  }
  const auto late = absl::DeadlineExceededError(absl::StrCat(
      request_.name(), " was not complete after ", request_.timeout.count(), " ms", describe()));
  owner_->on_failed(with_lost_ranks(late, owner_->missing(*this)));
}

std::string RunningOperation::describe() const {
  std::string text;
  for (const std::string& reason : {owner_->absent(*this), waits_for_}) {
    if (!reason.empty()) absl::StrAppend(&text, "; ", reason);
  }
  for (const Part& part : parts_) {
    if (part.is_frozen) absl::StrAppend(&text, "; ", owner_->why_frozen());
    const bool is_running = part.task != nullptr && part.task->poll() == Task::State::kRunning;
    if (is_running) absl::StrAppend(&text, "; ", part.task->describe());
  }
  return text;
}

// ---- For the handle ----------------------------------------------------------------------------

std::shared_ptr<Endpoint> RunningOperation::endpoint() const {
  if (is_inherited()) throw InvalidArgument(prefixed(rank_of_, kInherited));
  return endpoint_.lock();
}

bool RunningOperation::test() const {
  const auto endpoint = this->endpoint();
  if (endpoint == nullptr) return true;
  Progress::Guard guard(endpoint->progress());
  if (over()) is_known_over_ = true;
  return over();
}

bool RunningOperation::wait(Nanos deadline) {
  const auto endpoint = this->endpoint();
  if (endpoint == nullptr) return true;
  Progress::Guard guard(endpoint->progress());
  bool is_over = true;
  try {
    is_over = endpoint->progress().wait(guard, waiter_, deadline, [this] { return pace(); });
  } catch (const std::bad_alloc&) {
    if (!over()) owner_->on_failed(caught_status());
  }
  endpoint->progress().run_deferred();
  if (is_over) is_known_over_ = true;
  return is_over;
}

// Returns the pace of the part that needs the most attention.
Pace RunningOperation::pace() const {
  const Pace usual{.polls = request_.polls, .is_keen = request_.operation.bytes() < kKeen};
  Pace pace{.polls = false, .rest = std::numeric_limits<Nanos>::max()};
  bool is_running = false;
  for (const Part& part : parts_) {
    if (part.task == nullptr) return usual;
    if (part.task->poll() != Task::State::kRunning) continue;
    if (!part.task->has_slack()) return usual;
    pace.rest = std::min(pace.rest, part.task->rest());
    is_running = true;
  }
  if (!is_running) return usual;
  if (!request_.polls) pace.rest *= 2;  // CPU first
  return pace;
}

void RunningOperation::cancel() {
  if (is_known_over_ && !is_inherited()) return;  // this needs no lock
  const auto endpoint = this->endpoint();
  if (endpoint == nullptr) return;
  Progress::Guard guard(endpoint->progress());
  if (over()) return;
  absl::Status why;
  try {
    why = absl::CancelledError(absl::StrCat(request_.name(), " was cancelled by its caller"));
  } catch (const std::bad_alloc&) {
    why = caught_status();  // cancels without the text
  }
  owner_->on_failed(why);
  endpoint->progress().run_deferred();
}

int RunningOperation::source() const {
  const bool has_succeeded = test() && status_.ok();
  return has_succeeded && request_.exchange != nullptr ? request_.exchange->source() : -1;
}

size_t RunningOperation::received_bytes() const {
  const bool has_succeeded = test() && status_.ok();
  return has_succeeded && request_.exchange != nullptr ? request_.exchange->received_bytes() : 0;
}

bool RunningOperation::notify(std::function<void()> function) {
  const auto endpoint = this->endpoint();
  if (has_notified_.exchange(true)) return false;
  if (endpoint != nullptr) {
    Progress::Guard guard(endpoint->progress());
    if (!over()) {
      when_over_ = std::move(function);
      return true;
    }
  }
  function();
  return true;
}

void RunningOperation::raise_if_failed() const {
  if (!status_.ok()) raise(rank_of_, status_);
}

}  // namespace nezha
