// SPDX-License-Identifier: Apache-2.0
// Operations whose peers are not known yet, and the thread that asks the store for them.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <thread>
#include <tuple>
#include <vector>

#include "absl/status/status.h"
#include "common/hash_map.h"
#include "context/roster.h"
#include "context/running_operation.h"
#include "context/setup.h"

namespace nezha {

// All methods are called under the lock, except set_up().
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

// The operations that wait, and which later ones must wait behind them. A collective waits behind
// all, since it takes all ranks. Sends to one rank by one tag start in the order of their calls,
// and so do receives from one rank by one tag.
class WaitingOrder {
 public:
  // Returns whether the operation may start before those that wait.
  bool lets_pass(const RunningOperation& operation) const;
  // Adds an operation that waits.
  void add(const RunningOperation& operation);

 private:
  bool is_empty_ = true;
  HashSet<std::tuple<bool, uint64_t, int>> exchanges_;  // is it a send, its tag, one of its peers
};

// All methods are called under the lock, except join().
class Starter {
 public:
  // The starter refers to these objects, which must outlive it.
  Starter(const Setup& setup, Roster& roster, StarterOwner& owner)
      : setup_(setup), roster_(roster), owner_(owner) {}

  // The operation starts once its peers are known and all operations that it must wait behind have
  // started.
  void add(const std::shared_ptr<RunningOperation>& operation);
  // Returns whether the operation need not wait behind any other.
  bool lets_pass(const RunningOperation& operation) const { return order_.lets_pass(operation); }
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
  void start_those_with_known_peers();
  absl::Status resolve(RunningOperation& operation, const std::vector<int>& peers);

  const Setup& setup_;
  Roster& roster_;
  StarterOwner& owner_;
  std::deque<std::shared_ptr<RunningOperation>> waiting_;  // in the order of their calls
  WaitingOrder order_;                                     // the order of waiting_
  bool wants_set_up_ = false;
  bool is_running_ = false;  // the thread has work
  bool is_closing_ = false;
  std::thread thread_;
};

}  // namespace nezha
