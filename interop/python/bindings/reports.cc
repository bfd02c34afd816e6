// SPDX-License-Identifier: Apache-2.0
#include "bindings/reports.h"

#include <pybind11/stl.h>

namespace nezha::python {
namespace {

// The dataclass of this name with these members.
template <typename... Members>
py::object make(const char* name, Members&&... members) {
  return py::module_::import("nezha._reports").attr(name)(std::forward<Members>(members)...);
}

py::object to_python(const SizeClassStats& stats) {
  using py::literals::operator""_a;
  return make("SizeClassStats", "least_bytes"_a = stats.least_bytes, "shares"_a = stats.shares,
              "algorithm"_a = stats.algorithm, "number"_a = stats.number, "state"_a = stats.state,
              "is_trying"_a = stats.is_trying, "lane_us"_a = stats.lane_us,
              "windows"_a = stats.windows, "bytes"_a = stats.bytes, "history"_a = stats.history);
}

}  // namespace

using py::literals::operator""_a;

py::object to_python(const std::vector<RailStats>& rails) {
  py::list list;
  for (const RailStats& rail : rails) {
    list.append(make("RailStats", "name"_a = rail.name, "bytes_sent"_a = rail.bytes_sent,
                     "bytes_received"_a = rail.bytes_received,
                     "segments_resent"_a = rail.segments_resent, "failures"_a = rail.failures,
                     "reconnections"_a = rail.reconnections, "last_failure"_a = rail.last_failure,
                     "rate"_a = rail.rate, "down_peers"_a = rail.down_peers,
                     "down_seconds"_a = rail.down_seconds, "last_error"_a = rail.last_error,
                     "lossy_peers"_a = rail.lossy_peers));
  }
  return std::move(list);
}

py::object to_python(const BalanceStats& balance) {
  py::list classes;
  for (const SizeClassStats& stats : balance.classes) classes.append(to_python(stats));
  return make("BalanceStats", "lanes"_a = balance.lanes, "classes"_a = classes);
}

py::object to_python(const std::vector<NetworkInterface>& interfaces) {
  py::list list;
  for (const NetworkInterface& each : interfaces) {
    list.append(make("NetworkInterface", "name"_a = each.name, "kind"_a = each.kind,
                     "addresses"_a = each.addresses, "mtu"_a = each.mtu, "speed"_a = each.speed,
                     "pci"_a = each.pci, "numa_node"_a = each.numa_node, "uri"_a = each.uri,
                     "reason"_a = each.reason));
  }
  return std::move(list);
}

py::object to_python(const LaunchEnvironment& launch) {
  return make("LaunchEnvironment", "launcher"_a = launch.launcher, "rank"_a = launch.rank,
              "size"_a = launch.size, "local_rank"_a = launch.local_rank,
              "local_size"_a = launch.local_size, "job"_a = launch.job);
}

}  // namespace nezha::python
