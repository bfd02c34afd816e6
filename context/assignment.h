// SPDX-License-Identifier: Apache-2.0
// How an operation is carried out: its slices, the engine of each, and the plan that says so.
#pragma once

#include <cstdint>

#include "absl/container/inlined_vector.h"
#include "collectives/engine.h"
#include "common/buffer_pool.h"
#include "common/recycled.h"

namespace nezha {

struct AssignedSlice {
  Slice slice;
  Engine* engine = nullptr;  // null: the slice waits for a repair
  ScheduleKind schedule = ScheduleKind::kRing;
};

using AssignedSlices = absl::InlinedVector<AssignedSlice, 1, RecyclingAllocator<AssignedSlice>>;

struct Assignment {
  uint32_t plan = 0;    // the plan's number
  uint32_t number = 0;  // the allocation's number
  AssignedSlices slices;
  Buffer scratch;          // used by the slices
  Engine* gate = nullptr;  // holds the operation until all ranks have started it; null: no gate
};

}  // namespace nezha
