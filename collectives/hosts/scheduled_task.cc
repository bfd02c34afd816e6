// SPDX-License-Identifier: Apache-2.0
#include "collectives/hosts/scheduled_task.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "absl/container/inlined_vector.h"
#include "absl/strings/str_cat.h"
#include "collectives/hosts/choice.h"
#include "collectives/signature.h"

namespace nezha {
ScheduledTask::ScheduledTask(const Schedule& schedule, const Group& group, const Slice& slice,
                             TaskOwner& owner)
    : Task(owner),
      group_(group),
      slice_(slice),
      reducer_(slice.operation.reducer(group.size)),
      rounds_(slice, schedule.chunks, slice.operation.blocks),
      received_(slice, schedule.chunks,
                slice.operation.received_blocks ? slice.operation.received_blocks
                                                : slice.operation.blocks),
      is_exchange_(schedule.is_exchange) {
  stages_.reserve(schedule.steps.size());
  for (const Step& step : schedule.steps) {
    Stage& stage = stages_.emplace_back();
    stage.use = step.use;
    const auto add = [&](auto& messages, const Transfer& transfer, const Rounds& rounds) -> auto& {
      auto& message = messages.emplace_back();
      message.task = this;
      message.peer = transfer.peer;
      message.chunks = transfer.chunks;
      message.channel = group.channels[static_cast<size_t>(transfer.peer)];
      message.rounds = &rounds;
      message.total = rounds.total(transfer.chunks);
      left_ += message.total;
      return message;
    };
    stage.outgoing.reserve(step.sends.size());
    for (const Transfer& transfer : step.sends) add(stage.outgoing, transfer, rounds_);
    if (step.use != Step::Use::kAgreement) sends_ += step.sends.size();
    stage.incoming.reserve(step.receives.size());
    for (const Transfer& transfer : step.receives) {
      Incoming& incoming = add(stage.incoming, transfer, received_);
      incoming.stage = &stage;
      incoming.index = messages_++;
    }
  }
  copies_input_ = slice_.operation.input == slice_.operation.output && overwrites_what_it_sends();
}

// If the caller's output has no room for what this rank receives to pass on or to sum up for other
// ranks, takes scratch as large as the vector in its place.
void ScheduledTask::take_relay() {
  Operation& op = slice_.operation;
  if (op.blocks == nullptr || op.bytes() == 0) return;
  const Range own = op.blocks->block(group_.rank);
  const auto has_room = [&](const Incoming& in) {
    const Step::Use use = in.stage->use;
    if (use == Step::Use::kPartialSum || use == Step::Use::kAgreement) return true;
    if (!traits(op.collective).gives_block) return op.output != nullptr;
    const Range part = received_.range(0, in.chunks);
    return part.offset == own.offset && part.length == own.length;
  };
  const bool all_have_room = std::all_of(stages_.begin(), stages_.end(), [&](const Stage& stage) {
    return std::all_of(stage.incoming.begin(), stage.incoming.end(), has_room);
  });
  if (all_have_room) return;
  relay_ = group_.pool->take(op.bytes());
  result_ = std::exchange(op.output, relay_.data());
  op.output_offset = 0;
}

// In an operation in place, a final sum overwrites the input, which may have to be sent again if a
// link dies. (A sum that another rank computes comes back only after this rank's input has arrived
// there.)
bool ScheduledTask::overwrites_what_it_sends() const {
  for (const Stage& stage : stages_) {
    if (stage.incoming.empty() || stage.use == Step::Use::kResult) continue;
    const Chunks& summed = stage.incoming.front().chunks;
    return std::any_of(stage.outgoing.begin(), stage.outgoing.end(), [&](const Outgoing& out) {
      return out.chunks.begin < summed.end && summed.begin < out.chunks.end;
    });
  }
  return false;
}

void ScheduledTask::start(const EnginePlan& plan) {
  plan_ = plan;
  take_relay();
  copy_own_block(slice_.operation, group_);
  // The agreement comes first, so that the peer hears it first, whatever the peer calls.
  const auto is_agreement = [](const Stage& stage) { return stage.use == Step::Use::kAgreement; };
  absl::InlinedVector<Stage*, 8> in_order;
  for (Stage& stage : stages_) {
    in_order.insert(is_agreement(stage) ? in_order.begin() : in_order.end(), &stage);
  }
  const Operation& op = slice_.operation;
  uint64_t turn = first_turn(op.ordinal, sends_);
  const bool takes_turns =
      op.collective == Collective::kAllreduce && nezha::takes_turns(op.bytes());
  // All messages are opened at once, so that each peer hears of its message if this rank gives up.
  for (Stage* stage : in_order) {
    for (Outgoing& out : stage->outgoing) {
      Route route{.rails = slice_.rails, .granule = rounds_.granule()};
      if (takes_turns && !is_agreement(*stage)) route.turn = turn++;
      out.message = out.channel->open(message_info(group_, slice_, plan_, out.total), route, &out);
      if (is_agreement(*stage)) out.channel->settle(*out.message);  // this sends it
    }
  }
  for (Stage* stage : in_order) {
    for (Incoming& in : stage->incoming) {
      Inbox::Ticket* ticket = in.channel->post(message_info(group_, slice_, plan_, in.total), &in);
      if (state_ != State::kRunning) return;
      if (!in.complete) in.ticket = ticket;  // else the ticket is gone already
    }
  }
  started_ = true;
  proceed();
}

ScheduledTask::Round& ScheduledTask::round(size_t index) {
  const auto [entry, is_new] = live_.try_emplace(index);
  Round& round = entry->second;
  if (!is_new) return round;
  round.arrivals.resize(messages_);
  for (const Stage& stage : stages_) {
    for (const Incoming& in : stage.incoming) {
      const bool is_empty = in.total == 0 && index == 0;
      round.arrivals[in.index].missing = is_empty ? 1 : received_.range(index, in.chunks).length;
    }
  }
  return round;
}

// ---- Rounds ------------------------------------------------------------------------------------

void ScheduledTask::begin(size_t index) {
  Round& round = this->round(index);
  round.begun = true;
  if (slice_.operation.input == nullptr) return;  // the first step receives
  const Range whole = rounds_.whole(index);
  round.own = slice_.operation.input;
  round.own_offset = slice_.operation.input_offset;
  if (!copies_input_ || whole.length == 0) return;
  round.input_copy = group_.pool->take(whole.length);
  std::memcpy(round.input_copy.data(), slice_.operation.input_at(whole.offset), whole.length);
  round.own = round.input_copy.data();
  round.own_offset = whole.offset;
}

// Takes the round through the steps as far as the data that have arrived allow.
void ScheduledTask::advance(size_t index) {
  Round& round = this->round(index);
  if (!round.begun) return;
  for (; !is_complete(round) && state_ == State::kRunning; ++round.stage) {
    Stage& stage = stages_[round.stage];
    if (!std::exchange(round.sent, true)) send(index, stage);
    for (const Incoming& in : stage.incoming) {
      if (round.arrivals[in.index].missing > 0) return;
    }
    if (absl::Status status = combine(index, stage); !status.ok()) return fail(status);
    round.sent = false;
  }
}

void ScheduledTask::proceed() {
  if (!started_) return;
  for (bool progress = true; progress && state_ == State::kRunning;) {
    progress = false;
    if (begun_ < rounds_.count() && begun_ < completed_ + kWindow) {
      begin(begun_);
      advance(begun_++);
      progress = true;
    }
    while (completed_ < begun_) {
      const auto entry = live_.find(completed_);
      if (entry != live_.end() && !is_complete(entry->second)) break;
      forget_if_done(completed_++);
      progress = true;
    }
  }
  if (completed_ == rounds_.count()) settle();
}

void ScheduledTask::send(size_t index, Stage& stage) {
  if (stage.use == Step::Use::kAgreement) return;
  Round& round = this->round(index);
  for (Outgoing& out : stage.outgoing) {
    const Range part = rounds_.range(index, out.chunks);
    if (out.total == 0) out.channel->settle(*out.message);  // this sends it
    if (part.length == 0) continue;
    round.unreleased += part.length;
    const uint64_t offset = index * rounds_.range(0, out.chunks).length;
    out.channel->push(*out.message, offset, round.own + (part.offset - round.own_offset),
                      part.length);
  }
}

// Makes what has arrived in a step this rank's data for the next one.
absl::Status ScheduledTask::combine(size_t index, const Stage& stage) {
  if (stage.incoming.empty() || stage.use == Step::Use::kAgreement) return absl::OkStatus();
  const Operation& op = slice_.operation;
  Round& round = this->round(index);
  const Incoming& first = stage.incoming.front();
  const Range part = received_.range(index, first.chunks);
  if (stage.use != Step::Use::kResult && part.length > 0) {
    if (absl::Status status = sum_rest(round, stage, part); !status.ok()) return status;
  }
  if (is_exchange_) return absl::OkStatus();  // each step sends from the input
  const bool is_in_scratch = stage.use == Step::Use::kPartialSum ||
                             (stage.use == Step::Use::kFinalSum && op.output == nullptr);
  if (is_in_scratch) {
    round.own = round.arrivals[first.index].buffer.data();
    round.own_offset = part.offset;
  } else {
    round.own = op.output;
    round.own_offset = op.output_offset;
  }
  return absl::OkStatus();
}

// Sums `whole`, the part of the vector that a step receives, except what was digested.
absl::Status ScheduledTask::sum_rest(Round& round, const Stage& stage, const Range& whole) const {
  auto& digested = round.arrivals[stage.incoming.front().index].digested;
  const size_t end = whole.offset + whole.length;
  std::sort(digested.begin(), digested.end(),
            [](const Range& a, const Range& b) { return a.offset < b.offset; });
  digested.push_back({end, 0});
  size_t from = whole.offset;
  for (const Range& each : digested) {
    if (each.offset > from) {
      absl::Status status = sum(round, stage, whole, {from, each.offset - from});
      if (!status.ok()) return status;
    }
    from = each.offset + each.length;
  }
  return absl::OkStatus();
}

// Adds up what has arrived in a step and what this rank has in `part` of the vector, over the tree
// of ranks. `whole` is the part that the step receives. Partial sums overwrite the receive buffers;
// the last one is in that of the first message in `stage.incoming`. Digests call this without the
// lock.
absl::Status ScheduledTask::sum(const Round& round, const Stage& stage, const Range& whole,
                                const Range& part) const {
  const Operation& op = slice_.operation;
  const size_t elements = part.length / op.element_size;
  struct Operand {
    const std::byte* data;
    std::byte* scratch;  // where its sum with another may go; null for this rank's own
  };
  absl::InlinedVector<Operand, 4> operands;
  size_t lower_ranks = 0;
  for (const Incoming& in : stage.incoming) {
    std::byte* data = round.arrivals[in.index].buffer.data() + (part.offset - whole.offset);
    operands.push_back({data, data});
    if (in.peer < group_.rank) ++lower_ranks;
  }
  const std::byte* own = round.own + (part.offset - round.own_offset);
  operands.insert(operands.begin() + static_cast<ptrdiff_t>(lower_ranks), {own, nullptr});
  // Operands fold as ranks do: first as many pairs of neighbours as leave a power of two.
  for (size_t pairs = operands.size() - std::bit_floor(operands.size()); operands.size() > 1;
       pairs = operands.size() / 2) {
    // Only the last addition writes to the output, which may be the input.
    const bool is_final = operands.size() == 2 && stage.use == Step::Use::kFinalSum;
    for (size_t i = 0; i < pairs; ++i) {
      const auto [a, a_scratch] = operands[2 * i];
      const auto [b, b_scratch] = operands[2 * i + 1];
      std::byte* scratch = a_scratch != nullptr ? a_scratch : b_scratch;
      // The output may have no room for a partial sum.
      std::byte* result = is_final && op.output != nullptr ? op.output_at(part.offset) : scratch;
      absl::Status status = is_final ? reducer_.finish(result, scratch, a, b, elements)
                                     : reducer_.combine(scratch, a, b, elements);
      if (!status.ok()) return status;
      operands[i] = {scratch, scratch};
    }
    const auto first = operands.begin() + static_cast<ptrdiff_t>(pairs);
    operands.erase(first, first + static_cast<ptrdiff_t>(pairs));
  }
  return absl::OkStatus();
}

void ScheduledTask::forget_if_done(size_t index) {
  const auto entry = live_.find(index);
  if (entry == live_.end() || !is_complete(entry->second)) return;
  if (entry->second.unreleased == 0) live_.erase(entry);
}

// ---- The end -----------------------------------------------------------------------------------

// Messages are settled only now, because settling may copy what is not acknowledged yet.
void ScheduledTask::settle() {
  if (std::exchange(settling_, true)) return;
  if (result_ != nullptr) {
    const Range own = slice_.operation.blocks->block(group_.rank);
    std::memcpy(result_, relay_.data() + own.offset, own.length);
  }
  for (Stage& stage : stages_) {
    for (Outgoing& out : stage.outgoing) {
      if (out.message != nullptr && out.total > 0) out.channel->settle(*out.message);
    }
  }
  check_settled();
}

void ScheduledTask::check_settled() {
  if (!settling_) return;
  for (const Stage& stage : stages_) {
    for (const Outgoing& out : stage.outgoing) {
      if (out.message != nullptr) return;
    }
  }
  finish(State::kDone);
}

void ScheduledTask::fail(const absl::Status& why) {
  detach();
  finish(State::kFailed, why);
}

void ScheduledTask::detach() {
  for (Stage& stage : stages_) {
    for (Incoming& in : stage.incoming) {
      if (in.ticket != nullptr) in.channel->cancel(std::exchange(in.ticket, nullptr));
    }
    for (Outgoing& out : stage.outgoing) {
      if (out.message != nullptr) out.channel->abandon(*std::exchange(out.message, nullptr));
    }
  }
}

std::string ScheduledTask::describe() const {
  std::string text = schedule_name(plan_.schedule);
  const char* separator = ": ";
  const auto add = [&](const auto&... words) {
    absl::StrAppend(&text, std::exchange(separator, ", "), words...);
  };
  if (completed_ == rounds_.count()) {
    for (const Stage& stage : stages_) {
      for (const Outgoing& out : stage.outgoing) {
        if (out.message == nullptr) continue;
        add("waiting for rank ", out.peer, " to acknowledge (", out.channel->describe(), ")");
      }
    }
    return text;
  }
  const auto oldest = live_.find(completed_);
  const size_t step = oldest == live_.end() ? 0 : oldest->second.stage;
  absl::StrAppend(&text, ", step ", step + 1, " of ", stages_.size());
  for (const Incoming& in : stages_[step].incoming) {
    if (oldest != live_.end() && oldest->second.arrivals[in.index].missing == 0) continue;
    add("received ", in.received, " of ", in.total, " bytes from rank ", in.peer, " (",
        in.channel->describe(), ")");
  }
  return text;
}

// ---- One message -------------------------------------------------------------------------------

std::byte* ScheduledTask::Incoming::place(uint64_t offset, size_t length) {
  const Rounds::Place at = rounds->locate(chunks, offset);
  const Range part = rounds->range(at.round, chunks);
  const Operation& op = task->slice_.operation;
  const bool is_inside = at.offset + length <= part.length;
  if (!is_inside || !op.is_whole(at.offset, length)) return nullptr;
  if (stage->use == Step::Use::kResult) return op.output_at(part.offset + at.offset);
  // A peer begins no round before this rank has begun the one kWindow rounds earlier.
  if (at.round >= task->completed_ + 2 * kWindow) return nullptr;
  Buffer& buffer = task->round(at.round).arrivals[index].buffer;
  if (!buffer) buffer = task->group_.pool->take(part.length);
  return buffer.data() + at.offset;
}

void ScheduledTask::Incoming::landed(uint64_t offset, size_t length, Rail) {
  count_landed(length);
  take_in(offset, length);
}

void ScheduledTask::Incoming::count_landed(size_t length) {
  received += length;
  task->note_progress(length);
  complete = received == total;
  if (complete) ticket = nullptr;  // the inbox's ticket is gone
}

void ScheduledTask::Incoming::take_in(uint64_t offset, size_t length) {
  const size_t index_of_round = rounds->locate(chunks, offset).round;
  task->round(index_of_round).arrivals[index].missing -= std::max<size_t>(length, 1);
  task->advance(index_of_round);
  task->proceed();
}

// A segment is digested if its step sums two operands, and this rank's operand is there already.
// The user's function is called under the lock.
bool ScheduledTask::Incoming::digests(uint64_t offset, size_t /*length*/) const {
  const bool is_sum = stage->use == Step::Use::kPartialSum || stage->use == Step::Use::kFinalSum;
  if (!is_sum || stage->incoming.size() > 1 || task->reducer_.is_custom()) return false;
  const size_t index_of_round = rounds->locate(chunks, offset).round;
  Round& round = task->round(index_of_round);
  if (!round.sent || &task->stages_[round.stage] != stage) return false;
  const Round*& digesting = task->digesting_[index_of_round % task->digesting_.size()];
  if (digesting != &round) digesting = &round;
  return true;
}

void ScheduledTask::Incoming::digest(uint64_t offset, size_t length, std::byte* /*memory*/) {
  const Rounds::Place at = rounds->locate(chunks, offset);
  const Range whole = rounds->range(at.round, chunks);
  const Round& round = *task->digesting_[at.round % task->digesting_.size()];
  // Only the user's function may fail.
  task->sum(round, *stage, whole, {whole.offset + at.offset, length}).IgnoreError();
}

void ScheduledTask::Incoming::digested(uint64_t offset, size_t length, Rail) {
  count_landed(length);  // first: what follows may throw
  const Rounds::Place at = rounds->locate(chunks, offset);
  const size_t from = rounds->range(at.round, chunks).offset + at.offset;
  auto& digested = task->round(at.round).arrivals[index].digested;
  if (!digested.empty() && digested.back().offset + digested.back().length == from) {
    digested.back().length += length;
  } else {
    digested.push_back({from, length});
  }
  take_in(offset, length);
}

void ScheduledTask::Incoming::mismatched(const wire::MessageInfo& theirs) {
  ticket = nullptr;  // the inbox's ticket is gone
  task->fail(mismatch_error(task->group_.rank, peer,
                            message_info(task->group_, task->slice_, task->plan_, total), theirs,
                            task->slice_.operation));
}

void ScheduledTask::Outgoing::released(uint64_t offset, size_t length) {
  const size_t index = rounds->locate(chunks, offset).round;
  task->round(index).unreleased -= length;
  task->note_progress(length);
  task->forget_if_done(index);
}

void ScheduledTask::note_progress(size_t bytes) {
  left_ -= bytes;
  pace_.add(bytes, now());
}

void ScheduledTask::Outgoing::settled() {
  message = nullptr;
  task->check_settled();
}

}  // namespace nezha
