// SPDX-License-Identifier: Apache-2.0
// How an operation is carried: by which plan, cut how, by what, and where that came from.
#pragma once

#include <cstdint>

#include "absl/container/inlined_vector.h"
#include "collectives/engine.h"
#include "common/buffer_pool.h"
#include "common/recycled.h"

namespace nezha {

struct AssignedSlice {
  Slice slice;
  Engine* engine = nullptr;  // null: it waits for a repair
  ScheduleKind schedule = ScheduleKind::kRing;
};

using AssignedSlices = absl::InlinedVector<AssignedSlice, 1, RecyclingAllocator<AssignedSlice>>;

struct Assignment {
  uint32_t plan = 0;    // its number
  uint32_t number = 0;  // the allocation's
  AssignedSlices slices;
  Buffer scratch;          // of the slices
  Engine* gate = nullptr;  // which holds it until all ranks have started it; null: nothing is to
};

}  // namespace nezha
