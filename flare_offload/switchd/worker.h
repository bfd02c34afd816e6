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

// Once the worker's thread runs, it alone uses the lane. Any other thread may call the other
// methods. The thread takes no lock while no messages wait for it.
class Worker {
 public:
  // `all` has the workers of the lane's switch in the lanes' order, this one included, from before
  // start() until all have stopped.
  Worker(UdpPort port, size_t index, size_t count, std::vector<std::unique_ptr<Worker>>& all);
  ~Worker() { stop(); }
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  // `on_failure` is called by the thread if it ends early; failure() says why.
  absl::Status start(std::function<void()> on_failure);
  // Ends the thread, and waits for its end.
  void stop();

  // Has the worker call `function` between two batches of frames, and returns when that is done: at
  // once, but for the time that the worker waits for a core. The worker does not call it if the
  // thread fails. Callers call this between start() and stop().
  void call(absl::FunctionRef<void(Lane&)> function);
  // Has the worker handle a copy of the datagram soon. Returns false if the datagram is dropped
  // because too many messages wait.
  bool post(absl::Span<const std::byte> datagram, const Address& from);

  // Returns why the thread ended before stop(), or OK if it has not.
  absl::Status failure();

  // Returns the lane's port, which stays the same.
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
  // The most messages that wait: room for some trains from several other lanes, until the thread
  // gets a core.
  static constexpr size_t kMostLetters = 1024;

  void run();
  void fail(const absl::Status& why);
  bool take_mail();  // handles the messages; returns false if the thread is to end
  void ring();       // called under the lock

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
  std::condition_variable done_;  // signals that a call is done
};

}  // namespace nezha::flare
