// SPDX-License-Identifier: Apache-2.0
#include "control/data_length_table.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "collectives/schedule_kind.h"

namespace nezha {
namespace {

// Returns the smallest size of the class, such as "8 MiB".
std::string size_name(SizeClass size_class) {
  static constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  return absl::StrCat(1 << size_class % 10, " ", kUnits[size_class / 10]);
}

std::string time_name(Nanos time) {
  if (time >= kSecond) return absl::StrFormat("%.2f s", static_cast<double>(time) / kSecond);
  if (time >= kMillisecond) {
    return absl::StrFormat("%.2f ms", static_cast<double>(time) / kMillisecond);
  }
  return absl::StrFormat("%.1f us", static_cast<double>(time) / kMicrosecond);
}

// Returns the part that a lane carries, and the time that it took.
std::string lane_cell(const TableEntry& entry, size_t lane) {
  if (entry.allocation[lane] == 0) return "-";
  const double percent = 100.0 * entry.allocation[lane] / SliceBounds::kWhole;
  const bool took_part = lane < entry.times.size() && entry.times[lane] > 0;
  return absl::StrFormat("%.1f%% %s", percent, took_part ? time_name(entry.times[lane]) : "");
}

std::string moment(absl::Time time) {
  if (time == absl::InfinitePast()) return "in an earlier run";
  return absl::FormatTime("%Y-%m-%d %H:%M:%E3S", time, absl::LocalTimeZone());
}

// Returns the lanes that carry a part, such as "eth0 71.4%, eth1 28.6%".
std::string parts(const Allocation& allocation, const std::vector<std::string>& lanes) {
  std::string out;
  for (size_t lane = 0; lane < allocation.size() && lane < lanes.size(); ++lane) {
    if (allocation[lane] == 0) continue;
    absl::StrAppendFormat(&out, "%s%s %.1f%%", out.empty() ? "" : ", ", lanes[lane],
                          100.0 * allocation[lane] / SliceBounds::kWhole);
  }
  return out;
}

}  // namespace

void TableEntry::saw(const Window& window) {
  ++windows;
  if (!is_probed()) keep(window);
}

void TableEntry::keep(const Window& window) {
  bytes = window.bytes;
  ran_by = allocation;
  times.clear();
  for (const LaneTime& lane : window.lanes) times.push_back(lane.mean);
}

bool TableEntry::is_probed() const {
  return !history.empty() && history.back().cause == Cause::kProbe;
}

void TableEntry::change(Allocation to, Cause cause) {
  allocation = std::move(to);
  ++number;
  record(cause);
}

void TableEntry::record(Cause cause) {
  ++changes;
  history.push_back({windows, cause, allocation, absl::Now()});
  if (history.size() > kHistory) history.pop_front();
}

std::string DataLengthTable::to_string() const {
  std::string out = absl::StrFormat("%9s  %-9s  %7s  %7s", "size", "state", "windows", "changes");
  for (const std::string& lane : lanes) absl::StrAppendFormat(&out, "  %-16s", lane);
  for (const auto& [size_class, entry] : entries) {
    absl::StrAppendFormat(&out, "\n%9s  %-9s  %7d  %7d", size_name(size_class),
                          name_of(entry.state), entry.windows, entry.changes);
    for (size_t lane = 0; lane < lanes.size(); ++lane) {
      absl::StrAppendFormat(&out, "  %-16s", lane_cell(entry, lane));
    }
    if (entry.algorithm != Algorithm::kAuto) {
      absl::StrAppend(&out, "  by ", algorithm_name(entry.algorithm));
    }
  }
  return out + "\n";
}

std::string DataLengthTable::history(SizeClass size_class) const {
  std::string out;
  const auto found = entries.find(size_class);
  if (found == entries.end()) return out;
  for (const TableEntry::Change& change : found->second.history) {
    absl::StrAppendFormat(&out, "%s, after %d windows: %s: %s\n", moment(change.time),
                          change.windows, parts(change.allocation, lanes), name_of(change.cause));
  }
  return out;
}

absl::string_view name_of(ClassState state) {
  switch (state) {
    case ClassState::kSearching:
      return "searching";
    case ClassState::kCold:
      return "cold";
    case ClassState::kHot:
      return "hot";
    case ClassState::kConverged:
      return "converged";
  }
  return "";
}

absl::string_view name_of(Cause cause) {
  switch (cause) {
    case Cause::kStart:
      return "start";
    case Cause::kSearch:
      return "search";
    case Cause::kRebalance:
      return "rebalance";
    case Cause::kDrift:
      return "drift";
    case Cause::kProbe:
      return "probe";
    case Cause::kReturn:
      return "return";
    case Cause::kLanes:
      return "lanes";
    case Cause::kWay:
      return "way";
  }
  return "";
}

}  // namespace nezha
