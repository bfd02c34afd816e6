// SPDX-License-Identifier: Apache-2.0
#include "context/exchange_tasks.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace nezha {
namespace {

constexpr size_t kMostDescribed = 8;  // ranks

absl::Status sizes_error(int from, const Exchange::Terms& receive, uint64_t sent) {
  return absl::FailedPreconditionError(absl::StrCat(
      "rank ", from, " sends ", sent, " bytes to rank ", receive.rank, " by the tag ", receive.tag,
      ", and rank ", receive.rank, " has called recv for ", receive.bytes, " bytes there; ",
      receive.may_be_shorter ? "the message may not be longer" : "both must name the same size"));
}

}  // namespace

// ---- A send ------------------------------------------------------------------------------------

absl::Status SendTask::start(RailMask rails) {
  const Exchange::Terms& terms = exchange_.terms();
  const int peer = terms.peers.front();
  if (peer == group_.rank) {
    is_in_loopback_ = true;
    loopback_.add(*this);
    return absl::OkStatus();
  }
  channel_ = group_.channels[static_cast<size_t>(peer)];
  if (channel_->has_left(group_.context)) return channel_->left_error();
  message_ = channel_->open(exchange_.info(group_.context), {.rails = rails}, this);
  if (terms.bytes > 0) channel_->push(*message_, 0, terms.input, terms.bytes);
  channel_->settle(*message_);
  return absl::OkStatus();
}

void SendTask::taken() {
  is_in_loopback_ = false;
  finish(State::kDone);
}

void SendTask::settled() {
  message_ = nullptr;
  finish(State::kDone);
}

void SendTask::failed(const absl::Status& why) {
  detach();
  finish(State::kFailed, why);
}

void SendTask::detach() {
  if (std::exchange(is_in_loopback_, false)) loopback_.remove(*this);
  if (message_ != nullptr) channel_->abandon(*std::exchange(message_, nullptr));
}

std::string SendTask::describe() const {
  const int peer = exchange_.terms().peers.front();
  if (channel_ == nullptr) return absl::StrCat("rank ", peer, " has not asked for it");
  const bool is_blocked = message_ != nullptr && message_->is_blocked();
  return absl::StrCat("rank ", peer,
                      is_blocked ? " has not asked for it (" : " has not acknowledged it (",
                      channel_->describe(), ")");
}

// ---- A receive ---------------------------------------------------------------------------------

ReceiveTask::ReceiveTask(Exchange& exchange, const Group& group, Loopback& loopback,
                         TaskOwner& owner)
    : Task(owner), exchange_(exchange), group_(group), loopback_(loopback) {
  claims_.reserve(exchange.terms().peers.size());
  for (const int source : exchange.terms().peers) {
    Claim& claim = claims_.emplace_back();
    claim.task = this;
    claim.source = source;
    claim.channel = group.channels[static_cast<size_t>(source)];
  }
}

void ReceiveTask::start() {
  for (Claim& claim : claims_) {
    post(claim);
    if (match_ != nullptr || state_ != State::kRunning) return;
  }
}

void ReceiveTask::post(Claim& claim) {
  if (claim.channel == nullptr) return loopback_.add(*this);
  Inbox::Ticket* ticket =
      claim.channel->post(exchange_.info(group_.context), &claim, /*asks=*/true);
  if (claim.is_open) claim.ticket = ticket;  // otherwise the ticket is gone already
}

void ReceiveTask::match(Claim& claim, size_t bytes) {
  match_ = &claim;
  exchange_.set_source(claim.source);
  exchange_.set_received_bytes(bytes);
  for (Claim& other : claims_) {
    if (&other != &claim) other.withdraw();
  }
}

void ReceiveTask::take(const std::byte* data, size_t bytes) {
  const auto own = std::find_if(claims_.begin(), claims_.end(),
                                [](const Claim& claim) { return claim.channel == nullptr; });
  own->is_open = false;
  match(*own, bytes);
  if (bytes > 0) std::memmove(exchange_.terms().output, data, bytes);
  finish(State::kDone);
}

void ReceiveTask::fail(const absl::Status& why) {
  detach();
  finish(State::kFailed, why);
}

void ReceiveTask::detach() {
  for (Claim& claim : claims_) claim.withdraw();
}

std::string ReceiveTask::describe() const {
  const Exchange::Terms& terms = exchange_.terms();
  if (match_ != nullptr) {
    return absl::StrCat("received ", received_, " of ", exchange_.received_bytes(),
                        " bytes from rank ", match_->source, " (", match_->channel->describe(),
                        ")");
  }
  std::vector<int> waited_for;
  std::vector<std::string> rails;
  for (const Claim& claim : claims_) {
    if (!claim.is_open) continue;
    waited_for.push_back(claim.source);
    if (claim.channel == nullptr || rails.size() == kMostDescribed) continue;
    rails.push_back(
        absl::StrCat(claims_.size() > 1 ? absl::StrCat("rank ", claim.source, ": ") : "",
                     claim.channel->describe()));
  }
  return absl::StrCat(names_of(waited_for), waited_for.size() == 1 ? " has" : " have",
                      " sent nothing by the tag ", terms.tag,
                      rails.empty() ? "" : absl::StrCat(" (", absl::StrJoin(rails, "; "), ")"));
}

// ---- One claim ---------------------------------------------------------------------------------

// A message of the wrong size matches, too, and ends the receive with an error.
bool ReceiveTask::Claim::accepts(const wire::MessageInfo& theirs) {
  task->match(*this, theirs.total);
  wire::MessageInfo expected = task->exchange_.info(task->group_.context);
  if (task->exchange_.takes(theirs.total)) expected.total = theirs.total;
  return theirs == expected;
}

std::byte* ReceiveTask::Claim::place(uint64_t offset, size_t /*length*/) {
  return task->exchange_.terms().output + offset;
}

void ReceiveTask::Claim::landed(uint64_t /*offset*/, size_t length, Rail /*rail*/) {
  task->received_ += length;
  if (task->received_ < task->exchange_.received_bytes()) return;
  is_open = false;
  ticket = nullptr;  // the inbox has removed it
  task->finish(State::kDone);
}

// If a rank has left in good order, a receive from several ranks goes on with the others.
void ReceiveTask::Claim::failed(const absl::Status& why) {
  const bool is_in_order =
      task->match_ == nullptr && channel->has_left_in_order(task->group_.context);
  const bool has_others =
      std::any_of(task->claims_.begin(), task->claims_.end(),
                  [this](const Claim& other) { return &other != this && other.is_open; });
  if (!is_in_order || !has_others) return task->fail(why);
  withdraw();
}

void ReceiveTask::Claim::mismatched(const wire::MessageInfo& theirs) {
  is_open = false;
  ticket = nullptr;  // the inbox has removed it
  task->fail(sizes_error(source, task->exchange_.terms(), theirs.total));
}

void ReceiveTask::Claim::withdraw() {
  if (!std::exchange(is_open, false)) return;
  if (channel == nullptr) return task->loopback_.remove(*task);
  if (ticket != nullptr) channel->cancel(std::exchange(ticket, nullptr));
}

// ---- Loopback ----------------------------------------------------------------------------------

void Loopback::add(SendTask& send) {
  const uint64_t tag = send.exchange().terms().tag;
  ReceiveTask* receive = take_first(tag, &Queue::receives);
  if (receive != nullptr) return pass(send, *receive);
  queues_[tag].sends.push_back(&send);
}

void Loopback::add(ReceiveTask& receive) {
  const uint64_t tag = receive.exchange().terms().tag;
  SendTask* send = take_first(tag, &Queue::sends);
  if (send != nullptr) return pass(*send, receive);
  queues_[tag].receives.push_back(&receive);
}

template <typename T>
T* Loopback::take_first(uint64_t tag, std::deque<T*> Queue::*its) {
  const auto entry = queues_.find(tag);
  if (entry == queues_.end() || (entry->second.*its).empty()) return nullptr;
  T* first = (entry->second.*its).front();
  remove(*first, its);
  return first;
}

template <typename T>
void Loopback::remove(const T& task, std::deque<T*> Queue::*its) {
  const auto entry = queues_.find(task.exchange().terms().tag);
  if (entry == queues_.end()) return;
  Queue& queue = entry->second;
  std::erase(queue.*its, &task);
  if (queue.sends.empty() && queue.receives.empty()) queues_.erase(entry);
}

void Loopback::remove(const SendTask& send) { remove(send, &Queue::sends); }
void Loopback::remove(const ReceiveTask& receive) { remove(receive, &Queue::receives); }

void Loopback::pass(SendTask& send, ReceiveTask& receive) {
  const Exchange::Terms& sent = send.exchange().terms();
  if (!receive.exchange().takes(sent.bytes)) {
    return receive.fail(sizes_error(sent.rank, receive.exchange().terms(), sent.bytes));
  }
  receive.take(sent.input, sent.bytes);
  send.taken();
}

}  // namespace nezha
