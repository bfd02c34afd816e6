// SPDX-License-Identifier: Apache-2.0
// The coordinator runs at rank 0. It turns readings into steps from plan to plan, and losses of
// engines into repairs. It has no I/O and no clock.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "control/control_message.h"
#include "control/load_balancer.h"
#include "control/plan_agreement.h"
#include "control/recovery.h"
#include "control/size_class.h"
#include "control/timer.h"

namespace nezha {

class Coordinator {
 public:
  // Sends a message to every rank, including this one. Messages arrive in order.
  using Broadcast = std::function<void(const control_message::Message&)>;

  Coordinator(int ranks, LoadBalancer balancer, Broadcast broadcast);

  // An operation with a message of that size was seen.
  void saw(uint64_t bytes);
  // These handle the ranks' messages. An error means that the rank's message is not valid.
  absl::Status on_lanes(int rank, LaneSet live);
  absl::Status on_readings(int rank, absl::Span<const Reading> readings);
  absl::Status on_report(int rank, const control_message::Report& report);
  absl::Status on_lost(int lane);
  absl::Status on_frozen(int rank, control_message::Frozen frozen);
  // The rank is gone. A step that is under way ends without its report, and no other one begins.
  void lose(int rank);
  // Goes on from what another run has learned. Must be called before saw().
  absl::Status resume(const DataLengthTable& table);

  const DataLengthTable& table() const { return balancer_.table(); }
  DataLengthTable learned() const { return balancer_.learned(); }
  bool is_stepping() const { return plans_.is_stepping(); }
  bool is_recovering() const { return recoveries_.is_recovering(); }
  // These return the ranks whose reports a step is waiting for, and those that a recovery is
  // waiting for.
  std::vector<int> missing() const { return plans_.missing(); }
  std::vector<int> not_frozen() const { return recoveries_.missing(); }

 private:
  void set_window(SizeClass size_class);
  void add(AllocationChange change);
  void add_all(std::vector<AllocationChange> changes);
  void step();
  LaneSet engines() const;
  void freeze();

  LoadBalancer balancer_;
  Timer timer_;
  PlanCoordinator plans_;
  RecoveryCoordinator recoveries_;
  Broadcast broadcast_;
  std::vector<AllocationChange> pending_;  // each class's latest change, for the next commit
  std::vector<LaneSet> live_;              // indexed by rank
  LaneSet all_live_;
  std::array<uint64_t, kSizeClasses> seen_{};  // operations since the class's last window
  bool is_over_ = false;
};

}  // namespace nezha
