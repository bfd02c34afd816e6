// SPDX-License-Identifier: Apache-2.0
// Operations whose peers are not known yet, and the thread that asks the store for them.
#pragma once

#include <deque>
#include <memory>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "context/roster.h"
#include "context/running_operation.h"
#include "context/setup.h"

namespace nezha {

// All of it is called under the lock, except set_up().
class StarterOwner {
 public:
  // Returns the ranks that the operation takes and to which no channel leads yet.
  virtual std::vector<int> unknown_peers(const RunningOperation& operation) const = 0;
  // Is called once all ranks that the operation takes are known.
  virtual void launch(const std::shared_ptr<RunningOperation>& operation) = 0;
  // Is called without the lock; see Starter::want_set_up.
  virtual void set_up() = 0;
  // Is called when the context cannot go on.
  virtual void on_failed(const absl::Status& why) = 0;

 protected:
  ~StarterOwner() = default;
};

// All of it is called under the lock, except join().
class Starter {
 public:
  // The starter refers to these objects, which must outlive it.
  Starter(const Setup& setup, Roster& roster, StarterOwner& owner)
      : setup_(setup), roster_(roster), owner_(owner) {}

  // Operations start in the order in which they were added.
  void add(const std::shared_ptr<RunningOperation>& operation);
  bool empty() const { return waiting_.empty(); }
  bool holds(const OperationId& operation) const;
  // The thread is to call the owner's set_up(), once no operation waits.
  void want_set_up();
  // From here on the starter starts nothing.
  void close() { is_closing_ = true; }
  bool is_closing() const { return is_closing_; }
  // Waits for the thread. Is called without the lock, once the starter is closed.
  void join();

 private:
  void wake();
  void run();
  bool do_next(absl::Status& status);
  std::shared_ptr<RunningOperation> next(std::vector<int>& peers);
  absl::Status resolve(RunningOperation& operation, const std::vector<int>& peers);

  const Setup& setup_;
  Roster& roster_;
  StarterOwner& owner_;
  std::deque<std::shared_ptr<RunningOperation>> waiting_;
  bool wants_set_up_ = false;
  bool is_running_ = false;  // the thread has work
  bool is_closing_ = false;
  std::thread thread_;
};

}  // namespace nezha
