// SPDX-License-Identifier: Apache-2.0
#include "collectives/engine.h"

#include <cstring>

namespace nezha {

void copy_own_block(const Operation& op, const Group& group) {
  if (op.blocks == nullptr || op.input == nullptr || op.output == nullptr) return;
  if (traits(op.collective).reduces && group.size > 1) return;
  const Range from = op.blocks->block(group.rank);
  const Range to = op.blocks_received().block(group.rank);
  if (from.length == 0 || op.input_at(from.offset) == op.output_at(to.offset)) return;
  std::memcpy(op.output_at(to.offset), op.input_at(from.offset), from.length);
}

ChunkMap ranges_of(const Operation& operation, const SliceBounds& bounds, ScheduleKind schedule,
                   int ranks) {
  const bool is_ring =
      schedule == ScheduleKind::kRing && operation.collective == Collective::kAllreduce;
  const int chunks = is_ring ? ranks : 1;
  const Partition partition(operation.elements, operation.element_size, chunks);
  ChunkMap ranges;
  for (int i = 0; i < chunks; ++i) add(ranges, partition.chunk(i, bounds));
  return ranges;
}

}  // namespace nezha
