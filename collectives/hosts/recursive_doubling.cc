#include "collectives/hosts/recursive_doubling.h"

#include <bit>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "collectives/signature.h"

namespace nezha {
namespace {

int largest_power_of_two(int size) {
  return static_cast<int>(std::bit_floor(static_cast<unsigned>(size)));
}

}  // namespace

std::vector<int> RecursiveDoubling::peers(int rank, int size) {
  const int power = largest_power_of_two(size);
  if (rank >= power) return {rank - power};
  std::vector<int> peers;
  if (rank + power < size) peers.push_back(rank + power);
  for (int distance = 1; distance < power; distance *= 2) peers.push_back(rank ^ distance);
  return peers;
}

RecursiveDoubling::RecursiveDoubling(const Group& group, const Slice& slice, TaskOwner& owner)
    : Task(owner),
      group_(group),
      slice_(slice),
      range_(Partition(slice.operation.elements, slice.operation.element_size, 1)
                 .chunk(0, slice.bounds)),
      reduce_(reduction(slice.operation.type, slice.operation.operation)) {
  const int power = largest_power_of_two(group_.size);
  if (group_.rank >= power) {
    add_exchange(group_.rank - power, /*sends=*/true, /*receives=*/true, /*is_result=*/true);
    return;
  }
  const int folded = group_.rank + power;
  if (folded < group_.size) add_exchange(folded, /*sends=*/false, /*receives=*/true);
  for (int distance = 1; distance < power; distance *= 2) {
    add_exchange(group_.rank ^ distance, /*sends=*/true, /*receives=*/true);
  }
  if (folded < group_.size) add_exchange(folded, /*sends=*/true, /*receives=*/false);
}

void RecursiveDoubling::add_exchange(int peer, bool sends, bool receives, bool is_result) {
  auto exchange = std::make_unique<Exchange>();
  exchange->task = this;
  exchange->peer = peer;
  exchange->sends = sends;
  exchange->receives = receives;
  exchange->is_result = is_result;
  exchange->channel = group_.channels[static_cast<size_t>(peer)];
  if (receives && !is_result) exchange->buffer = group_.pool->take(range_.length);
  exchanges_.push_back(std::move(exchange));
}

void RecursiveDoubling::start(const EnginePlan& plan) {
  plan_ = plan;
  const Operation& op = slice_.operation;
  current_ = op.input + range_.offset;
  // In place, the last sum overwrites the input, which a link that dies may have to send again. (A
  // rank that was folded in gets the result only after its input has arrived.)
  if (op.input == op.output && !exchanges_.front()->is_result && range_.length > 0) {
    input_copy_ = group_.pool->take(range_.length);
    std::memcpy(input_copy_.data(), current_, range_.length);
    current_ = input_copy_.data();
  }
  const wire::MessageInfo info = message_info(group_, slice_, plan_, range_.length);
  const size_t granule = Partition(1, op.element_size, 1).granule();
  // All are opened at once: should this rank give up, each peer hears of its message.
  for (auto& exchange : exchanges_) {
    if (!exchange->sends) continue;
    exchange->outgoing = exchange->channel->open(info, {slice_.rails, granule, 1}, exchange.get());
  }
  for (auto& exchange : exchanges_) {
    if (!exchange->receives) continue;
    Inbox::Ticket* ticket = exchange->channel->post(info, exchange.get());
    if (state_ != State::kRunning) return;
    if (!exchange->complete) exchange->incoming = ticket;  // else it is gone again
  }
  started_ = true;
  advance();
}

void RecursiveDoubling::advance() {
  if (!started_) return;
  for (; next_ < exchanges_.size() && state_ == State::kRunning; ++next_) {
    Exchange& exchange = *exchanges_[next_];
    if (exchange.sends && !exchange.sent) send(exchange);
    if (exchange.receives && !exchange.complete) return;
    if (exchange.receives && !exchange.is_result) combine(exchange);
  }
  check_complete();
}

void RecursiveDoubling::send(Exchange& exchange) {
  exchange.sent = true;
  if (range_.length > 0) exchange.channel->push(*exchange.outgoing, 0, current_, range_.length);
  exchange.channel->settle(*exchange.outgoing);
}

void RecursiveDoubling::combine(Exchange& exchange) {
  bool is_last = true;
  for (size_t i = next_ + 1; i < exchanges_.size(); ++i) is_last &= !exchanges_[i]->receives;
  const std::byte* theirs = exchange.buffer.data();
  const bool mine_first = group_.rank < exchange.peer;
  std::byte* sum = is_last ? slice_.operation.output + range_.offset : exchange.buffer.data();
  reduce_(sum, mine_first ? current_ : theirs, mine_first ? theirs : current_,
          range_.length / slice_.operation.element_size);
  current_ = sum;
}

void RecursiveDoubling::check_complete() {
  if (state_ != State::kRunning || next_ < exchanges_.size()) return;
  for (const auto& exchange : exchanges_) {
    if (exchange->outgoing != nullptr) return;
  }
  finish(State::kDone);
}

void RecursiveDoubling::detach() {
  for (auto& exchange : exchanges_) {
    if (exchange->incoming != nullptr) {
      exchange->channel->cancel(std::exchange(exchange->incoming, nullptr));
    }
    if (exchange->outgoing != nullptr) {
      exchange->channel->abandon(*std::exchange(exchange->outgoing, nullptr));
    }
  }
}

std::string RecursiveDoubling::describe() const {
  for (const auto& exchange : exchanges_) {
    if (exchange->receives && !exchange->complete) {
      return absl::StrCat("recursive doubling: received ", exchange->received, " of ",
                          range_.length, " bytes from rank ", exchange->peer, " (",
                          exchange->channel->describe(), ")");
    }
  }
  for (const auto& exchange : exchanges_) {
    if (exchange->outgoing != nullptr) {
      return absl::StrCat("recursive doubling: sending to rank ", exchange->peer, " (",
                          exchange->channel->describe(), ")");
    }
  }
  return "recursive doubling: complete";
}

// ---- One exchange ------------------------------------------------------------------------------

std::byte* RecursiveDoubling::Exchange::place(uint64_t offset, size_t length) {
  if (!task->slice_.operation.is_whole(offset, length)) return nullptr;
  if (is_result) return task->slice_.operation.output + task->range_.offset + offset;
  return buffer.data() + offset;
}

void RecursiveDoubling::Exchange::landed(uint64_t, size_t length, Rail) {
  received += length;
  if (received < task->range_.length) return;
  complete = true;
  incoming = nullptr;  // the inbox's ticket is gone
  task->advance();
}

void RecursiveDoubling::Exchange::settled() {
  outgoing = nullptr;
  task->check_complete();
}

void RecursiveDoubling::Exchange::failed(const absl::Status& why) {
  task->detach();
  task->finish(State::kFailed, why);
}

void RecursiveDoubling::Exchange::mismatched(const wire::MessageInfo& theirs) {
  incoming = nullptr;  // the inbox's ticket is gone
  const wire::MessageInfo ours =
      message_info(task->group_, task->slice_, task->plan_, task->range_.length);
  failed(mismatch_error(peer, ours, theirs));
}

}  // namespace nezha
