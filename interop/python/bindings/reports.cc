// SPDX-License-Identifier: Apache-2.0
#include "bindings/reports.h"

#include <pybind11/stl.h>

#include <utility>

namespace nezha::python {
namespace {

// Returns the dataclass of this name with these members.
template <typename... Members>
py::object make(const char* name, Members&&... members) {
  return py::module_::import("nezha._reports").attr(name)(std::forward<Members>(members)...);
}

py::object to_python(const SizeClassStats& stats) {
  return make("SizeClassStats", py::arg("least_bytes") = stats.least_bytes,
              py::arg("shares") = stats.shares, py::arg("algorithm") = stats.algorithm,
              py::arg("number") = stats.number, py::arg("state") = stats.state,
              py::arg("is_trying") = stats.is_trying, py::arg("lane_us") = stats.lane_us,
              py::arg("windows") = stats.windows, py::arg("bytes") = stats.bytes,
              py::arg("history") = stats.history);
}

}  // namespace

py::object to_python(const std::vector<RailStats>& rails) {
  py::list list;
  for (const RailStats& rail : rails) {
    list.append(
        make("RailStats", py::arg("name") = rail.name, py::arg("bytes_sent") = rail.bytes_sent,
             py::arg("bytes_received") = rail.bytes_received,
             py::arg("segments_resent") = rail.segments_resent, py::arg("failures") = rail.failures,
             py::arg("reconnections") = rail.reconnections,
             py::arg("last_failure") = rail.last_failure, py::arg("rate") = rail.rate,
             py::arg("down_peers") = rail.down_peers, py::arg("down_seconds") = rail.down_seconds,
             py::arg("last_error") = rail.last_error, py::arg("lossy_peers") = rail.lossy_peers));
  }
  return std::move(list);
}

py::object to_python(const BalanceStats& balance) {
  py::list classes;
  for (const SizeClassStats& stats : balance.classes) classes.append(to_python(stats));
  return make("BalanceStats", py::arg("lanes") = balance.lanes, py::arg("classes") = classes);
}

py::object to_python(const std::vector<NetworkInterface>& interfaces) {
  py::list list;
  for (const NetworkInterface& each : interfaces) {
    list.append(make("NetworkInterface", py::arg("name") = each.name, py::arg("kind") = each.kind,
                     py::arg("addresses") = each.addresses, py::arg("mtu") = each.mtu,
                     py::arg("speed") = each.speed, py::arg("pci") = each.pci,
                     py::arg("numa_node") = each.numa_node, py::arg("uri") = each.uri,
                     py::arg("reason") = each.reason));
  }
  return std::move(list);
}

py::object to_python(const LaunchEnvironment& launch) {
  return make("LaunchEnvironment", py::arg("launcher") = launch.launcher,
              py::arg("rank") = launch.rank, py::arg("size") = launch.size,
              py::arg("local_rank") = launch.local_rank, py::arg("local_size") = launch.local_size,
              py::arg("job") = launch.job);
}

}  // namespace nezha::python
