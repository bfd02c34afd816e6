// SPDX-License-Identifier: Apache-2.0
// The load balancer: the data length table, kept by a policy. It is the coordinator's alone.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "control/data_length_table.h"
#include "control/decision_log.h"
#include "control/policy.h"
#include "control/way_trial.h"

namespace nezha {

// What the ranks are to be told: how messages of the class are divided from an agreed step on.
struct AllocationChange {
  SizeClass size_class = 0;
  uint32_t number = 0;
  Allocation allocation;
  Algorithm algorithm = Algorithm::kAuto;  // kAuto: the one that messages of their size have
  // Of short messages, from a probe: what they take by it is known.
  bool is_return = false;
};

class LoadBalancer {
 public:
  // Another way that may be the better one for messages of a class: by which algorithm (none: it is
  // no way for them; kAuto: by the one that messages of their size have), and the policy that
  // divides them, as each has seen nothing of what messages take the other ways.
  using AlgorithmOf = std::function<std::optional<Algorithm>(SizeClass)>;
  struct Way {
    AlgorithmOf algorithm;
    std::unique_ptr<Policy> policy;
  };

  // Lanes by name, at most kMaxLanes; policies are of as many. `others` may be better than the
  // policy and the algorithms that messages have by their size.
  LoadBalancer(std::vector<std::string> lanes, std::unique_ptr<Policy> policy,
               std::vector<Way> others = {});

  // Where it tells of each decision; nowhere, without this.
  void tell(DecisionLog log) { log_ = std::move(log); }

  // By what messages of that size run: by their class's allocation, or, until it has one, by that
  // of the nearest class; as unlearned() has it when there is none.
  Allocation allocation(uint64_t bytes) const;
  // A message of that size has been seen: gives its class an allocation of its own if it had none.
  std::optional<AllocationChange> open(uint64_t bytes);
  // The change that follows from a window, if one does. Windows by anything but their class's
  // latest allocation are passed over. After one of operations that said nothing no trial goes on.
  std::optional<AllocationChange> on_window(const Window& window);
  // Of how many operations the next window of a class is to be: for the Timer, after each call of
  // on_window(), open(), set_live() and resume(), which change it for classes whose allocations
  // stay, too.
  int window_operations(SizeClass size_class) const;

  // The lanes that are live are others. Not empty.
  std::vector<AllocationChange> set_live(LaneSet live);

  const DataLengthTable& table() const { return table_; }
  // For another run: without a trial that is under way.
  DataLengthTable learned() const;
  // Goes on from a table of the same lanes, before any class is open: what the ranks are to be
  // told. Classes whose lanes are not live start again. An error, and nothing is changed, if the
  // lanes' names are others, or an allocation has lanes together that the policy's do not.
  absl::StatusOr<std::vector<AllocationChange>> resume(const DataLengthTable& table);

 private:
  std::optional<AllocationChange> on_own_window(const Window& window, TableEntry& entry);
  // None if the class goes on by the allocation that it has.
  std::optional<AllocationChange> follow(SizeClass size_class, Decision decision);

  struct Trials {
    WayTrial trial;
    size_t tried = 0;  // the way of the last one
    // By way that divides: as it did when the class left it.
    std::vector<std::optional<Allocation>> by;
  };
  Policy& policy(const TableEntry& entry) const { return *ways_[entry.way].policy; }
  std::optional<size_t> way_of(SizeClass size_class, const TableEntry& entry) const;
  Trials& trials_of(SizeClass size_class);
  WayTrial& trial_of(SizeClass size_class) { return trials_of(size_class).trial; }
  void forget_divisions(SizeClass size_class);
  Allocation allocation_by(size_t way, SizeClass size_class) const;
  bool is_another(size_t way, SizeClass size_class) const;
  bool is_twice(size_t way, SizeClass size_class) const;
  std::optional<AllocationChange> begin_trial(SizeClass size_class);
  std::optional<AllocationChange> on_trial(const Window& window);
  std::optional<AllocationChange> go_home(SizeClass size_class, absl::string_view why);
  std::optional<AllocationChange> on_silence(SizeClass size_class);

  DataLengthTable table_;
  std::vector<Way> ways_;  // the first is for all classes
  DecisionLog log_;
  const Window* window_ = nullptr;  // that is being looked at
  std::map<SizeClass, Trials> trials_;
};

}  // namespace nezha
