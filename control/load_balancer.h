// SPDX-License-Identifier: Apache-2.0
// The load balancer keeps the data length table as a policy decides. Only the coordinator has one.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "control/data_length_table.h"
#include "control/decision_log.h"
#include "control/policy.h"

namespace nezha {

// What the ranks must be told: how messages of the class are divided from an agreed step on.
struct AllocationChange {
  SizeClass size_class = 0;
  uint32_t number = 0;
  Allocation allocation;
  Algorithm algorithm = Algorithm::kAuto;  // kAuto: the default for the size
  // Whether a probe is over and the class returns to an allocation whose times are known.
  bool is_return = false;
};

class LoadBalancer {
 public:
  // `lanes` are the lanes' names, at most kMaxLanes. The policy must have as many lanes.
  LoadBalancer(std::vector<std::string> lanes, std::unique_ptr<Policy> policy);

  // Sets the log of decisions. Without a call nothing is logged.
  void tell(DecisionLog log) { log_ = std::move(log); }

  // Returns the allocation of messages of that size: their class's or, until it has one, that of
  // the nearest class, or else Policy::unlearned().
  Allocation allocation(uint64_t bytes) const;
  // A message of that size was seen. Gives its class an allocation of its own if it has none.
  std::optional<AllocationChange> open(uint64_t bytes);
  // Returns the change that follows from a window, if any. Ignores windows that did not run by
  // their class's latest allocation. A window without measurements ends a probe.
  std::optional<AllocationChange> on_window(const Window& window);
  // Returns the number of operations in the next window of a class. The Timer must be told after
  // each call of on_window(), open(), set_live() and resume(), which may also change it for classes
  // whose allocations stay.
  int window_operations(SizeClass size_class) const {
    return policy_->window_operations(size_class);
  }

  // Sets the live lanes, of which there is at least one. Returns the changes that follow.
  std::vector<AllocationChange> set_live(LaneSet live);

  const DataLengthTable& table() const { return table_; }
  // Returns the table for another run, without probes that are under way.
  DataLengthTable learned() const;
  // Goes on from the table of an earlier run; no class may be open. Returns what the ranks must be
  // told. Classes whose lanes are not live start again. Returns an error, and changes nothing, if
  // the lanes' names differ, or if an allocation has a set of lanes that the policy does not allow.
  absl::StatusOr<std::vector<AllocationChange>> resume(const DataLengthTable& table);

 private:
  absl::Status check(const DataLengthTable& table) const;
  void resume(SizeClass size_class, TableEntry saved);
  const TableEntry& home(SizeClass size_class) const;
  std::optional<AllocationChange> on_silence(SizeClass size_class);
  // Returns nullopt if the class keeps its allocation.
  std::optional<AllocationChange> follow(SizeClass size_class, Decision decision);

  DataLengthTable table_;
  std::unique_ptr<Policy> policy_;
  DecisionLog log_;
  const Window* window_ = nullptr;         // the one that on_window() handles now
  std::map<SizeClass, TableEntry> homes_;  // the entries of classes as they were before a probe
};

}  // namespace nezha
