// SPDX-License-Identifier: Apache-2.0
// Arbitrary bytes as messages between a rank and the coordinator: what decode() accepts is within
// its limits, and encode() reproduces it byte for byte.
#include <algorithm>
#include <cstdlib>
#include <numeric>

#include "control/control_message.h"

namespace nezha::control_message {
namespace {

struct IsWithinLimits {
  int lanes;

  bool operator()(const Lanes& m) const { return (m.live & ~all_lanes(lanes)) == 0; }
  bool operator()(const Readings& m) const {
    return std::all_of(m.readings.begin(), m.readings.end(), [&](const Reading& reading) {
      return reading.idle >= 0 && reading.lanes.size() == static_cast<size_t>(lanes) &&
             std::all_of(reading.lanes.begin(), reading.lanes.end(),
                         [](Nanos time) { return time >= 0; });
    });
  }
  bool operator()(const Commit& m) const {
    return (m.engines & ~all_lanes(lanes)) == 0 &&
           std::all_of(m.changes.begin(), m.changes.end(), [&](const AllocationChange& change) {
             const Allocation& parts = change.allocation;
             const auto sum = std::accumulate(parts.begin(), parts.end(), uint64_t{0});
             return change.size_class < kSizeClasses && sum == SliceBounds::kWhole &&
                    parts.size() == static_cast<size_t>(lanes);
           });
  }
  bool operator()(const Lost& m) const { return m.lane >= 0 && m.lane < lanes; }
  bool operator()(const Freeze& m) const { return m.lane >= 0 && m.lane < lanes; }
  template <typename Other>
  bool operator()(const Other&) const {
    return true;
  }
};

void check(absl::string_view bytes, int lanes) {
  const auto message = decode(bytes, lanes);
  if (!message.ok()) return;
  if (encode(*message) != bytes || !std::visit(IsWithinLimits{lanes}, *message)) std::abort();
}

}  // namespace
}  // namespace nezha::control_message

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  nezha::control_message::check({reinterpret_cast<const char*>(data) + 1, size - 1},
                                1 + data[0] % nezha::kMaxLanes);
  return 0;
}
