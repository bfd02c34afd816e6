// SPDX-License-Identifier: Apache-2.0
// What the log says, at debug, of the load balancer's decisions: what was decided, by which
// measurement, and why.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "common/log.h"
#include "control/data_length_table.h"
#include "control/policy.h"
#include "control/split_choice.h"

namespace nezha {

// "64 KiB to 128 KiB": the sizes of a class.
std::string sizes_of(SizeClass size_class);
// "eth0 62.5%, eth1 37.5%": the lanes that carry something.
std::string shares_of(const std::vector<std::string>& lanes, const Allocation& allocation);

// Formats nothing while the log is not to say it.
class DecisionLog {
 public:
  // A log that says nothing.
  DecisionLog() = default;
  // `rates`: of the lanes, in bytes of messages per second; may be empty.
  DecisionLog(RankLog log, LaneRates rates) : log_(std::move(log)), rates_(std::move(rates)) {}

  // A class that had `before` (which is empty for a new one) goes on as `decision` says, after
  // `window`: null where no measurement has led to it.
  void decided(const std::vector<std::string>& lanes, SizeClass size_class,
               const TableEntry& before, const Decision& decision, const Window* window) const;
  // The lanes that work on all ranks are others.
  void live(const std::vector<std::string>& lanes, LaneSet live) const;
  // A class that was searching keeps what it has from now on.
  void settled(const std::vector<std::string>& lanes, SizeClass size_class, const TableEntry& entry,
               const Window& window) const;

 private:
  bool is_on() const { return log_ != nullptr && log_->should_log(spdlog::level::debug); }
  // By what it was decided.
  std::string grounds(const std::vector<std::string>& lanes, const Allocation& ran_by,
                      const Window* window) const;

  RankLog log_;
  LaneRates rates_;
};

}  // namespace nezha
