// SPDX-License-Identifier: Apache-2.0
#include "control/decision_log.h"

#include <cstddef>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "collectives/schedule_kind.h"

namespace nezha {
namespace {

constexpr double kMega = 1e6;

absl::string_view reason_of(const Decision& decision) {
  if (!decision.why.empty()) return decision.why;
  switch (decision.cause) {
    case Cause::kStart:
      return "these are the first messages of their size";
    case Cause::kSearch:
      return "sets of rails are compared";
    case Cause::kRebalance:
      return "the rails are to finish together";
    case Cause::kDrift:
      return "the rails take longer or shorter than before";
    case Cause::kProbe:
      return "an experiment uses another way";
    case Cause::kReturn:
      return "the experiment was not faster";
    case Cause::kLanes:
      return "a rail was lost or has come back";
    case Cause::kWay:
      return "the experiment has shown that this is faster";
  }
  return "";
}

// Returns a text such as "eth0 62.5%, eth1 37.5% by ring".
std::string described(const std::vector<std::string>& lanes, const Allocation& allocation,
                      Algorithm algorithm) {
  const std::string shares = shares_of(lanes, allocation);
  return algorithm == Algorithm::kAuto ? shares
                                       : absl::StrCat(shares, " by ", algorithm_name(algorithm));
}

// Returns a text such as "eth0 5.21 ms (157.1 MB/s)".
std::string measured(const std::string& lane, double bytes, const LaneTime& time) {
  const double seconds = static_cast<double>(time.mean) / kSecond;
  return absl::StrFormat("%s %.3f ms +- %.3f (%.1f MB/s)", lane, seconds * 1e3,
                         static_cast<double>(time.error) / kMillisecond, bytes / seconds / kMega);
}

std::string bytes_name(uint64_t bytes) {
  static constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  size_t unit = 0;
  for (; bytes >= 1024 && bytes % 1024 == 0 && unit + 1 < std::size(kUnits); ++unit) bytes /= 1024;
  return absl::StrCat(bytes, " ", kUnits[unit]);
}

}  // namespace

std::string sizes_of(SizeClass size_class) {
  const uint64_t least = uint64_t{1} << size_class;
  if (size_class + 1 == kSizeClasses) return absl::StrCat(bytes_name(least), " and more");
  return absl::StrCat(bytes_name(least), " to ", bytes_name(2 * least));
}

std::string shares_of(const std::vector<std::string>& lanes, const Allocation& allocation) {
  std::vector<std::string> shares;
  for (size_t lane = 0; lane < allocation.size(); ++lane) {
    if (allocation[lane] == 0) continue;
    shares.push_back(absl::StrFormat("%s %.1f%%", lanes[lane], part_of(100, allocation[lane])));
  }
  return absl::StrJoin(shares, ", ");
}

void DecisionLog::decided(const std::vector<std::string>& lanes, SizeClass size_class,
                          const TableEntry& before, const Decision& decision,
                          const Window* window) const {
  if (!is_on()) return;
  const Algorithm algorithm = decision.algorithm.value_or(before.algorithm);
  const std::string was = described(lanes, before.allocation, before.algorithm);
  const std::string is = described(lanes, decision.allocation, algorithm);
  const std::string change = before.allocation.empty() ? absl::StrCat("begin with ", is)
                             : was == is               ? absl::StrCat("stay with ", is)
                                                       : absl::StrCat("go from ", was, " to ", is);
  log_->debug("balancer: messages of {} {} ({}: {}); {}", sizes_of(size_class), change,
              std::string(name_of(decision.cause)), std::string(reason_of(decision)),
              grounds(lanes, before.allocation, window));
}

void DecisionLog::live(const std::vector<std::string>& lanes, LaneSet live) const {
  if (!is_on()) return;
  std::vector<std::string> names;
  for (size_t lane = 0; lane < lanes.size(); ++lane) {
    if (contains(live, static_cast<int>(lane))) names.push_back(lanes[lane]);
  }
  log_->debug("balancer: all ranks can use {} now, of {}", absl::StrJoin(names, ", "),
              absl::StrJoin(lanes, ", "));
}

void DecisionLog::settled(const std::vector<std::string>& lanes, SizeClass size_class,
                          const TableEntry& entry, const Window& window) const {
  if (!is_on()) return;
  log_->debug("balancer: messages of {} stay with {} ({}: nothing that was measured is better); {}",
              sizes_of(size_class), described(lanes, entry.allocation, entry.algorithm),
              std::string(name_of(entry.state)), grounds(lanes, entry.allocation, &window));
}

std::string DecisionLog::grounds(const std::vector<std::string>& lanes, const Allocation& ran_by,
                                 const Window* window) const {
  std::vector<std::string> parts;
  for (size_t lane = 0; window != nullptr && lane < window->lanes.size(); ++lane) {
    if (window->lanes[lane].mean == 0) continue;
    const double bytes = part_of(static_cast<double>(window->bytes), ran_by[lane]);
    parts.push_back(measured(lanes[lane], bytes, window->lanes[lane]));
  }
  std::string text = parts.empty()
                         ? "nothing was measured"
                         : absl::StrCat("measured over ", window->operations, " operations of ",
                                        window->bytes, " bytes: ", absl::StrJoin(parts, ", "));
  if (rates_ == nullptr) return text;
  const std::vector<double> rates = rates_(/*also_tried=*/true);
  parts.clear();
  for (size_t lane = 0; lane < rates.size(); ++lane) {
    if (rates[lane] < 0) continue;  // the lane has no rate
    parts.push_back(rates[lane] == 0
                        ? absl::StrCat(lanes[lane], " unknown")
                        : absl::StrFormat("%s %.1f MB/s", lanes[lane], rates[lane] / kMega));
  }
  return absl::StrCat(text, "; rates known: ", absl::StrJoin(parts, ", "));
}

}  // namespace nezha
