// SPDX-License-Identifier: Apache-2.0
// The sends and receives of a context. They run beside its collectives: no roll call counts them,
// no plan holds them, and the loss of a switch does not concern them.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "context/exchange_tasks.h"
#include "context/running_operation.h"

namespace nezha {

// All methods are called under Progress's lock.
class PointToPoint final : RunningOperationOwner {
 public:
  explicit PointToPoint(RunningOperationOwner& context) : context_(context) {}

  Loopback& loopback() { return loopback_; }
  // Operations tell this owner that they are over, or cannot go on.
  RunningOperationOwner& owner() { return *this; }

  // Starts the operation's deadline.
  void begin(const std::shared_ptr<RunningOperation>& operation);
  // Starts its task. The channels to its peers are in the group.
  static void launch(RunningOperation& operation, const Group& group);
  // Gives up the operations that are not over. The caller fails them.
  std::vector<std::shared_ptr<RunningOperation>> give_up() { return std::exchange(running_, {}); }
  bool is_idle() const { return running_.empty(); }

 private:
  void on_failed(const absl::Status& why) override { context_.on_failed(why); }
  void on_operation_slow(const RunningOperation& /*operation*/) override {}
  void on_operation_overdue(const RunningOperation& /*operation*/) override {}
  bool is_cut_off() const override { return context_.is_cut_off(); }
  std::string absent(const RunningOperation& /*operation*/) const override { return ""; }
  std::vector<int> missing(const RunningOperation& operation) const override;
  void on_operation_over(RunningOperation& operation) override;
  // None of these operations uses an engine that can be lost.
  void on_engine_lost(int /*lane*/) override {}
  std::string why_frozen() const override { return ""; }

  RunningOperationOwner& context_;
  Loopback loopback_;
  std::vector<std::shared_ptr<RunningOperation>> running_;
};

}  // namespace nezha
