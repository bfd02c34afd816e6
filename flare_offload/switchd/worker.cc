// SPDX-License-Identifier: Apache-2.0
#include "flare_offload/switchd/worker.h"

#include <poll.h>
#include <sched.h>
#include <sys/eventfd.h>

#include <cerrno>
#include <exception>
#include <new>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/clock.h"

namespace nezha::flare {

Worker::Worker(UdpPort port, size_t index, size_t count, std::vector<std::unique_ptr<Worker>>& all)
    : lane_(std::move(port), index, count),
      all_(all),
      bell_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {}

// An exception that leaves the thread would end the process without a message.
absl::Status Worker::start(std::function<void()> on_failure) {
  if (bell_.fd() < 0) return absl::ResourceExhaustedError("no descriptor is left for a thread");
  try {
    thread_ = std::thread([this, on_failure = std::move(on_failure)] {
      try {
        return run();
      } catch (const std::bad_alloc&) {
        fail(absl::ResourceExhaustedError(
            "no memory is left; choose a smaller --memory or smaller sessions"));
      } catch (const std::exception& error) {
        fail(absl::InternalError(error.what()));
      }
      on_failure();
    });
  } catch (const std::system_error& error) {
    return absl::ResourceExhaustedError(absl::StrCat("starting a thread: ", error.what()));
  }
  return absl::OkStatus();
}

void Worker::stop() {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    is_stopping_ = true;
    ring();
  }
  thread_.join();
}

void Worker::call(absl::FunctionRef<void(Lane&)> function) {
  Call call = {function};
  std::unique_lock lock(mutex_);
  calls_.push_back(&call);
  ring();
  done_.wait(lock, [&] { return call.is_done || !failure_.ok(); });
}

absl::Status Worker::failure() {
  const std::lock_guard lock(mutex_);
  return failure_;
}

void Worker::fail(const absl::Status& why) {
  {
    const std::lock_guard lock(mutex_);
    failure_ = why;
  }
  done_.notify_all();
}

bool Worker::post(absl::Span<const std::byte> datagram, const Address& from) {
  const std::lock_guard lock(mutex_);
  if (letters_.size() == kMostLetters) return false;
  letters_.push_back({from, {datagram.begin(), datagram.end()}});
  ring();
  return true;
}

void Worker::ring() {
  if (!has_mail_.exchange(true)) eventfd_write(bell_.fd(), 1);
}

// For a short time after the last frame the thread polls for the next one instead of sleeping:
// waking up costs more than a small block's whole way. It yields before each poll: if a host shares
// this core, the next frame is that host's answer.
void Worker::run() {
  constexpr Nanos kSpin = 50 * kMicrosecond;
  const auto to_others = [this](size_t lane, absl::Span<const std::byte> datagram,
                                const Address& from) { return all_[lane]->post(datagram, from); };
  for (Nanos last = 0;;) {
    if (has_mail_.load(std::memory_order_relaxed) && !take_mail()) return;
    if (lane_.receive(to_others) > 0) {
      last = now();
      sched_yield();
    } else if (now() - last < kSpin) {
      sched_yield();
    } else {
      // poll() fails only without memory; then looking again does no harm.
      pollfd awaited[] = {{lane_.port().fd(), POLLIN, 0}, {bell_.fd(), POLLIN, 0}};
      poll(awaited, 2, -1);
    }
  }
}

bool Worker::take_mail() {
  std::vector<Letter> letters;
  bool goes_on = false;
  {
    const std::lock_guard lock(mutex_);
    eventfd_t rung = 0;
    eventfd_read(bell_.fd(), &rung);
    has_mail_ = false;
    letters.swap(letters_);
    for (Call* call : calls_) {
      call->function(lane_);
      call->is_done = true;
    }
    calls_.clear();
    goes_on = !is_stopping_;
  }
  done_.notify_all();
  for (const Letter& letter : letters) lane_.handle(letter.datagram, letter.from);
  lane_.flush();
  return goes_on;
}

}  // namespace nezha::flare
