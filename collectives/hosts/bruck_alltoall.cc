// SPDX-License-Identifier: Apache-2.0
#include "collectives/hosts/bruck_alltoall.h"

#include <bit>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "collectives/signature.h"

namespace nezha {
namespace {

bool has_digit(int distance, int digit) { return (distance & digit) != 0; }
int lowest_digit(int distance) { return distance & -distance; }
int highest_digit(int distance) {
  return static_cast<int>(std::bit_floor(static_cast<unsigned>(distance)));
}

}  // namespace

BruckAlltoall::BruckAlltoall(const Group& group, const Slice& slice, TaskOwner& owner)
    : Task(owner),
      group_(group),
      slice_(slice),
      block_(slice.operation.bytes() / static_cast<size_t>(group.size)) {
  const int size = group.size;
  for (int digit = 1; digit < size; digit *= 2) {
    Step& step = steps_.emplace_back();
    step.task = this;
    step.digit = digit;
    step.right = (group.rank + digit) % size;
    step.left = (group.rank - digit + size) % size;
    step.bytes = distances(digit).size() * block_;
  }
}

std::vector<int> BruckAlltoall::peers(int rank, int size) {
  std::vector<int> peers;
  for (int digit = 1; digit < size; digit *= 2) {
    peers.push_back((rank + digit) % size);
    peers.push_back((rank - digit + size) % size);
  }
  return peers;
}

std::vector<int> BruckAlltoall::distances(int digit) const {
  std::vector<int> distances;
  for (int distance = digit; distance < group_.size; ++distance) {
    if (has_digit(distance, digit)) distances.push_back(distance);
  }
  return distances;
}

void BruckAlltoall::start(const EnginePlan& plan) {
  plan_ = plan;
  copy_own_block(slice_.operation, group_);
  if (slice_.operation.bytes() > 0) transit_ = group_.pool->take(slice_.operation.bytes());
  // All messages are opened at once, so that each peer hears of its message if this rank gives up.
  for (Step& step : steps_) {
    step.outgoing =
        channel(step.right)
            .open(message_info(group_, slice_, plan_, step.bytes), {.rails = slice_.rails}, &step);
  }
  for (Step& step : steps_) {
    Inbox::Ticket* ticket =
        channel(step.left).post(message_info(group_, slice_, plan_, step.bytes), &step);
    if (state_ != State::kRunning) return;
    if (!step.is_complete) step.incoming = ticket;  // else the ticket is gone already
  }
  is_started_ = true;
  advance();
}

// Goes through the steps as far as the data that have arrived allow.
void BruckAlltoall::advance() {
  if (!is_started_) return;
  for (; step_ < steps_.size() && state_ == State::kRunning; ++step_) {
    Step& step = steps_[step_];
    if (!std::exchange(step.is_sent, true)) {
      pack(step);
      if (step.bytes > 0) channel(step.right).push(*step.outgoing, 0, step.sent.data(), step.bytes);
      channel(step.right).settle(*step.outgoing);
    }
    if (!step.is_complete) return;
    unpack(step);
  }
  finish_if_settled();
}

// A block comes from the input in its first step, and from `transit_` later.
void BruckAlltoall::pack(Step& step) {
  if (step.bytes == 0) return;
  step.sent = group_.pool->take(step.bytes);
  const Operation& op = slice_.operation;
  std::byte* to = step.sent.data();
  for (const int distance : distances(step.digit)) {
    const bool is_first = lowest_digit(distance) == step.digit;
    const int target = (group_.rank + distance) % group_.size;
    const std::byte* from = is_first ? op.input_at(op.blocks->block(target).offset)
                                     : transit_.data() + static_cast<size_t>(distance) * block_;
    std::memcpy(to, from, block_);
    to += block_;
  }
}

// A block goes to the output in its last step, and to `transit_` before.
void BruckAlltoall::unpack(Step& step) {
  const Operation& op = slice_.operation;
  const std::byte* from = step.arrived.data();
  for (const int distance : distances(step.digit)) {
    if (step.bytes == 0) break;
    const bool is_last = highest_digit(distance) == step.digit;
    const int source = (group_.rank - distance + group_.size) % group_.size;
    std::byte* to = is_last ? op.output_at(op.blocks_received().block(source).offset)
                            : transit_.data() + static_cast<size_t>(distance) * block_;
    std::memcpy(to, from, block_);
    from += block_;
  }
  step.arrived.reset();
}

void BruckAlltoall::finish_if_settled() {
  if (step_ < steps_.size()) return;
  for (const Step& step : steps_) {
    if (step.outgoing != nullptr) return;
  }
  finish(State::kDone);
}

void BruckAlltoall::fail(const absl::Status& why) {
  detach();
  finish(State::kFailed, why);
}

void BruckAlltoall::detach() {
  for (Step& step : steps_) {
    if (step.incoming != nullptr) {
      channel(step.left).cancel(std::exchange(step.incoming, nullptr));
    }
    if (step.outgoing != nullptr) {
      channel(step.right).abandon(*std::exchange(step.outgoing, nullptr));
    }
  }
}

std::string BruckAlltoall::describe() const {
  std::string text = schedule_name(plan_.schedule);
  if (step_ < steps_.size()) {
    const Step& step = steps_[step_];
    absl::StrAppend(&text, ", step ", step_ + 1, " of ", steps_.size(), ": received ",
                    step.received, " of ", step.bytes, " bytes from rank ", step.left, " (",
                    channel(step.left).describe(), ")");
    return text;
  }
  for (const Step& step : steps_) {
    if (step.outgoing == nullptr) continue;
    absl::StrAppend(&text, ": waiting for rank ", step.right, " to acknowledge (",
                    channel(step.right).describe(), ")");
  }
  return text;
}

// ---- One step ----------------------------------------------------------------------------------

std::byte* BruckAlltoall::Step::place(uint64_t offset, size_t /*length*/) {
  if (!arrived) arrived = task->group_.pool->take(bytes);
  return arrived.data() + offset;
}

void BruckAlltoall::Step::landed(uint64_t /*offset*/, size_t length, Rail /*rail*/) {
  received += length;
  is_complete = received == bytes;
  if (!is_complete) return;
  incoming = nullptr;  // the inbox's ticket is gone
  task->advance();
}

void BruckAlltoall::Step::mismatched(const wire::MessageInfo& theirs) {
  incoming = nullptr;  // the inbox's ticket is gone
  task->fail(mismatch_error(task->group_.rank, left,
                            message_info(task->group_, task->slice_, task->plan_, bytes), theirs));
}

void BruckAlltoall::Step::settled() {
  outgoing = nullptr;
  sent.reset();
  task->finish_if_settled();
}

}  // namespace nezha
