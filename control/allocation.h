// SPDX-License-Identifier: Apache-2.0
// How a message is divided among lanes: what carry out parts of one operation side by side, each an
// allreduce of its own (a rail now; a switch is one too).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "collectives/partition.h"
#include "common/recycled.h"

namespace nezha {

// Bit i: lane i.
using LaneSet = uint32_t;

// Policies look at sets of lanes. Eight rails, and stripes.
constexpr int kMaxLanes = 9;

constexpr LaneSet lane_bit(int lane) { return LaneSet{1} << lane; }
constexpr LaneSet all_lanes(int lanes) { return (LaneSet{1} << lanes) - 1; }
constexpr bool contains(LaneSet set, int lane) { return (set & lane_bit(lane)) != 0; }

// Each lane's part of SliceBounds::kWhole. They add up to it.
using Allocation = RecycledVector<uint32_t>;

Allocation all_on(int lane, int lanes);
// `set` is not empty.
Allocation equal_parts(LaneSet set, int lanes);
// What messages run by while nothing is known: all on the first live lane of `alone`, which is
// stripes and finds its way by itself; equal parts of the live lanes where there is none. `live` is
// not empty.
Allocation unlearned(LaneSet live, LaneSet alone, int lanes);
// Weights are finite, none is negative, and one is positive. What rounding leaves goes to the
// largest.
Allocation in_proportion(absl::Span<const double> weights);

// The same, without the lanes outside of `set`, of which it has some.
Allocation restricted_to(LaneSet set, const Allocation& allocation);

// The lanes that carry something.
LaneSet lanes_of(const Allocation& allocation);
// What a lane carries of a message.
inline double part_of(double bytes, uint32_t part) { return bytes * part / SliceBounds::kWhole; }

// "62.5 37.5", in percent.
std::string to_string(const Allocation& allocation);

}  // namespace nezha
