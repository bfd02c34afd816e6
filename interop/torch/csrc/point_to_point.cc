// SPDX-License-Identifier: Apache-2.0
// The process group's sends and receives, and the monitored barrier, which uses them.
#include <nezha/errors.h>
#include <nezha/send_recv.h>

#include <algorithm>
#include <stdexcept>
#include <torch/csrc/distributed/c10d/Utils.hpp>
#include <utility>

#include "interop/torch/csrc/checks.h"
#include "interop/torch/csrc/launch.h"

namespace nezha_torch {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

// Programs' tags are below 2^31.
constexpr uint64_t kHereTag = uint64_t{1} << 40;
constexpr uint64_t kVerdictTag = kHereTag + 1;
constexpr uint64_t kHeardTag = kHereTag + 2;

size_t bytes(const at::Tensor& tensor) { return static_cast<size_t>(tensor.nbytes()); }

at::Tensor& only(const Refuse& refuse, Tensors& tensors, int tag) {
  c10d::assertSingleElement(refuse, tensors);
  check_tensors(refuse, tensors);
  if (tag < 0) refuse("Tag must be nonnegative");
  return tensors.front();
}

void check_rank(const Refuse& refuse, const char* role, int rank, int size) {
  if (rank >= 0 && rank < size) return;
  refuse(std::string("invalid ") + role + " rank: " + std::to_string(rank));
}

}  // namespace

WorkPtr ProcessGroup::send(Tensors& tensors, int destination, int tag) {
  const Refuse refuse = refusal_of("send");
  at::Tensor& tensor = only(refuse, tensors, tag);
  check_rank(refuse, "destination", destination, size_);
  auto work = make(c10d::OpType::SEND, "nezha:send", tensors, {});
  const at::Tensor message = work->buffers.read(tensor);
  nezha::SendOptions send(context());
  send.setDestination(destination);
  send.setTag(static_cast<uint64_t>(tag));
  send.setInput(static_cast<const void*>(message.data_ptr()), bytes(message));
  return begin(std::move(work), send, c10d::kUnsetTimeout, nezha::sendAsync);
}

WorkPtr ProcessGroup::recv(Tensors& tensors, int source, int tag) {
  check_rank(refusal_of("recv"), "source", source, size_);
  return receive(c10d::OpType::RECV, "nezha:recv", tensors, &source, tag);
}

WorkPtr ProcessGroup::recvAnysource(Tensors& tensors, int tag) {
  return receive(c10d::OpType::RECVANYSOURCE, "nezha:recvAnySource", tensors, nullptr, tag);
}

// The message comes from any rank if `source` is null.
WorkPtr ProcessGroup::receive(c10d::OpType type, const char* title, Tensors& tensors,
                              const int* source, int tag) {
  at::Tensor& tensor = only(refusal_of("recv"), tensors, tag);
  auto work = make(type, title, tensors, {tensors});
  const at::Tensor room = work->buffers.update(tensor);
  nezha::RecvOptions recv(context());
  if (source == nullptr) {
    recv.setAnySource();
  } else {
    recv.setSource(*source);
  }
  recv.setTag(static_cast<uint64_t>(tag));
  recv.setOutput(static_cast<void*>(room.data_ptr()), bytes(room));
  recv.setMayBeShorter(true);
  return begin(std::move(work), recv, c10d::kUnsetTimeout, nezha::recvAsync);
}

// ---- The monitored barrier ---------------------------------------------------------------------

namespace {

std::string text_of(const std::vector<int32_t>& missing, milliseconds timeout) {
  std::string ranks;
  for (const int32_t rank : missing) {
    ranks += (ranks.empty() ? "" : ", ") + std::to_string(rank);
  }
  return (missing.size() == 1 ? "Rank " : "Ranks ") + ranks +
         " failed to pass monitoredBarrier in " + std::to_string(timeout.count()) + " ms";
}

milliseconds until(steady_clock::time_point end) {
  const auto left = std::chrono::ceil<milliseconds>(end - steady_clock::now());
  return std::max(milliseconds(0), left);
}

}  // namespace

// Each rank sends rank 0 an empty message. When all have come, or the time is up, rank 0 sends the
// list of missing ranks to the ranks that have come. If any are missing, those ranks confirm the
// list. Only then does rank 0 break the process group, since that would lose a list that is under
// way.
void ProcessGroup::monitoredBarrier(const c10d::BarrierOptions& options, bool wait_all_ranks) {
  const milliseconds timeout = deadline(options.timeout);
  ++sequence_;
  if (rank_ == 0) {
    await_others(timeout, wait_all_ranks);
  } else {
    report_to(0, timeout);
  }
}

nezha::Handle ProcessGroup::expect_word(int rank, uint64_t tag, milliseconds timeout) {
  nezha::RecvOptions recv(context());
  recv.setSource(rank);
  recv.setTag(tag);
  recv.setOutput(nullptr, 0);
  recv.setTimeout(timeout);
  return nezha::recvAsync(recv);
}

void ProcessGroup::send_word(int rank, uint64_t tag, milliseconds timeout) {
  nezha::SendOptions send(context());
  send.setDestination(rank);
  send.setTag(tag);
  send.setInput(nullptr, 0);
  send.setTimeout(timeout);
  nezha::send(send);
}

void ProcessGroup::await_others(milliseconds timeout, bool wait_all_ranks) {
  const auto end = steady_clock::now() + timeout;
  std::vector<nezha::Handle> words;
  // The receives from missing ranks must not time out, which would break the group, before all
  // ranks that have come know the list.
  const milliseconds longer = 3 * timeout + timeout_.load();
  for (int rank = 1; rank < size_; ++rank) words.push_back(expect_word(rank, kHereTag, longer));
  std::vector<int32_t> missing;
  std::vector<int> here;
  std::string reason;
  for (int rank = 1; rank < size_; ++rank) {
    nezha::Handle& word = words[static_cast<size_t>(rank - 1)];
    try {
      const bool is_awaited = missing.empty() || wait_all_ranks;
      if (is_awaited ? word.wait(until(end)) : word.test()) {
        here.push_back(rank);
        continue;
      }
    } catch (const nezha::IoError& error) {
      reason = std::string(": ") + error.what();
    }
    if (missing.empty() || wait_all_ranks) missing.push_back(rank);
  }
  if (reason.empty()) tell(here, missing, timeout, end + timeout);
  if (!missing.empty()) throw std::runtime_error(text_of(missing, timeout) + reason);
}

void ProcessGroup::tell(const std::vector<int>& ranks, const std::vector<int32_t>& missing,
                        milliseconds timeout, steady_clock::time_point end) {
  std::vector<nezha::Handle> handles;
  for (const int rank : ranks) {
    nezha::SendOptions send(context());
    send.setDestination(rank);
    send.setTag(kVerdictTag);
    send.setInput(missing.data(), missing.size());
    send.setTimeout(timeout);
    handles.push_back(nezha::sendAsync(send));
    if (!missing.empty()) handles.push_back(expect_word(rank, kHeardTag, timeout));
  }
  if (missing.empty()) return nezha::waitAll(handles);
  try {
    nezha::waitAll(handles, until(end));
  } catch (const nezha::IoError&) {
    // The barrier has failed already, and this rank knows which ranks are missing.
  }
}

void ProcessGroup::report_to(int rank, milliseconds timeout) {
  const std::string me = "rank " + std::to_string(rank_);
  send_word(rank, kHereTag, timeout);
  std::vector<int32_t> missing(static_cast<size_t>(size_));
  nezha::RecvOptions recv(context());
  recv.setSource(rank);
  recv.setTag(kVerdictTag);
  recv.setOutput(missing.data(), missing.size());
  recv.setMayBeShorter(true);
  // Rank 0 may begin its own wait up to one timeout after this rank.
  recv.setTimeout(2 * timeout);
  nezha::Handle verdict = nezha::recvAsync(recv);
  try {
    verdict.wait();
  } catch (const nezha::TimeoutError& error) {
    throw std::runtime_error(me + " has come to monitoredBarrier, but rank " +
                             std::to_string(rank) + " has not told it in " +
                             std::to_string(2 * timeout.count()) +
                             " ms who else has: " + error.what());
  }
  missing.resize(verdict.bytes() / sizeof(int32_t));
  if (missing.empty()) return;
  try {
    send_word(rank, kHeardTag, timeout);
  } catch (const nezha::IoError&) {
    // Rank 0 no longer waits for the confirmation.
  }
  throw std::runtime_error(text_of(missing, timeout) + ", as rank " + std::to_string(rank) +
                           " has told " + me);
}

}  // namespace nezha_torch
