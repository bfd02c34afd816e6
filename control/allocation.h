// SPDX-License-Identifier: Apache-2.0
// How a message is divided among lanes. Lanes carry out parts of one operation side by side, each
// part as an allreduce of its own. A lane is a rail, stripes over all rails, or a switch.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "collectives/partition.h"
#include "common/recycled.h"

namespace nezha {

// A set of lanes: bit i stands for lane i.
using LaneSet = uint32_t;

// Eight rails, and stripes. The limit is low because policies look at sets of lanes.
constexpr int kMaxLanes = 9;

constexpr LaneSet lane_bit(int lane) { return LaneSet{1} << lane; }
constexpr LaneSet all_lanes(int lanes) { return (LaneSet{1} << lanes) - 1; }
constexpr bool contains(LaneSet set, int lane) { return (set & lane_bit(lane)) != 0; }

// Each lane's part of SliceBounds::kWhole. The parts add up to kWhole.
using Allocation = RecycledVector<uint32_t>;

Allocation all_on(int lane, int lanes);
// Returns equal parts for the lanes of `set`, which is not empty.
Allocation equal_parts(LaneSet set, int lanes);
// Returns what messages run by while nothing is known: all on the first live lane of `alone`, which
// is stripes and balances the rails by itself. If no lane of `alone` is live, the live lanes get
// equal parts. `live` is not empty.
Allocation unlearned(LaneSet live, LaneSet alone, int lanes);
// Returns parts in proportion to the weights. Weights are finite, none is negative, and one is
// positive. The lane with the largest weight gets the rest that rounding leaves.
Allocation in_proportion(absl::Span<const double> weights);

// Returns the allocation without the lanes outside of `set`; the others keep their proportions. At
// least one lane of `set` carries something.
Allocation restricted_to(LaneSet set, const Allocation& allocation);

// Returns the lanes that carry something.
LaneSet lanes_of(const Allocation& allocation);
// Returns how many of a message's bytes a lane carries.
inline double part_of(double bytes, uint32_t part) { return bytes * part / SliceBounds::kWhole; }

// Returns the parts in percent, such as "62.5 37.5".
std::string to_string(const Allocation& allocation);

}  // namespace nezha
