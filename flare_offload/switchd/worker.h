// SPDX-License-Identifier: Apache-2.0
// A lane with its thread, and the ways in which other threads reach it.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/types/span.h"
#include "common/net/socket.h"
#include "flare_offload/switchd/lane.h"

namespace nezha::flare {

// The lane is the worker's thread's alone once that runs. The other methods may be called by any
// thread but that one. While no letter lies there, the thread takes no lock.
class Worker {
 public:
  // `all` are the workers of the lane's switch, this one included: there they are, in the lanes'
  // order, before start() and until all have stopped.
  Worker(UdpPort port, size_t index, size_t count, std::vector<std::unique_ptr<Worker>>& all);
  ~Worker() { stop(); }
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  // `on_failure` is called by the thread if it comes to an early end; failure() says why.
  absl::Status start(std::function<void()> on_failure);
  // Ends the thread, and waits for its end.
  void stop();

  // Has the worker call it, between two batches of frames, and returns when that is done: at once,
  // but for the time that the worker waits for a core. Not done if the thread fails. Between
  // start() and stop().
  void call(absl::FunctionRef<void(Lane&)> function);
  // A copy of the datagram is handled soon. False: it is dropped, for too many wait.
  bool post(absl::Span<const std::byte> datagram, const Address& from);

  // Why the thread has ended before stop(); OK if it has not.
  absl::Status failure();

  // Of the port; does not change.
  UdpPort& port() { return lane_.port(); }

 private:
  struct Letter {
    Address from;
    std::vector<std::byte> datagram;
  };
  struct Call {
    absl::FunctionRef<void(Lane&)> function;
    bool is_done = false;
  };
  // Room for some trains of several others' until the thread gets a core.
  static constexpr size_t kMostLetters = 1024;

  void run();
  void fail(const absl::Status& why);
  bool take_mail();  // and does what it says; false: it is to end
  void ring();       // under the lock

  Lane lane_;
  std::vector<std::unique_ptr<Worker>>& all_;
  net::Socket bell_;  // an eventfd: wakes the thread
  std::thread thread_;

  std::atomic<bool> has_mail_ = false;
  std::mutex mutex_;
  std::vector<Letter> letters_;
  std::vector<Call*> calls_;
  bool is_stopping_ = false;
  absl::Status failure_;
  std::condition_variable done_;  // a call
};

}  // namespace nezha::flare
