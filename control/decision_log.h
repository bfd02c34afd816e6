// SPDX-License-Identifier: Apache-2.0
// Logs the load balancer's decisions, at level debug: what was decided, by which measurement, and
// why.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "common/log.h"
#include "control/data_length_table.h"
#include "control/policy.h"

namespace nezha {

// Returns the sizes of a class, such as "64 KiB to 128 KiB".
std::string sizes_of(SizeClass size_class);
// Returns the lanes that carry something, such as "eth0 62.5%, eth1 37.5%".
std::string shares_of(const std::vector<std::string>& lanes, const Allocation& allocation);

// Formats nothing while the log's level is above debug.
class DecisionLog {
 public:
  // Logs nothing.
  DecisionLog() = default;
  // `rates` returns the lanes' rates, in bytes of messages per second; it may be empty.
  DecisionLog(RankLog log, LaneRates rates) : log_(std::move(log)), rates_(std::move(rates)) {}

  // A class goes on from `before`, which is empty for a new class, as `decision` says. `window` is
  // the measurement that led to the decision; null: there was none.
  void decided(const std::vector<std::string>& lanes, SizeClass size_class,
               const TableEntry& before, const Decision& decision, const Window* window) const;
  // The set of lanes that work on all ranks has changed to `live`.
  void live(const std::vector<std::string>& lanes, LaneSet live) const;
  // A class that was searching has settled on its allocation.
  void settled(const std::vector<std::string>& lanes, SizeClass size_class, const TableEntry& entry,
               const Window& window) const;

 private:
  bool is_on() const { return log_ != nullptr && log_->should_log(spdlog::level::debug); }
  // Returns what a decision is based on.
  std::string grounds(const std::vector<std::string>& lanes, const Allocation& ran_by,
                      const Window* window) const;

  RankLog log_;
  LaneRates rates_;
};

}  // namespace nezha
