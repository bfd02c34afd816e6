#include "collectives/engine.h"

namespace nezha {

ChunkMap ranges_of(const Operation& operation, const SliceBounds& bounds, Algorithm algorithm,
                   int ranks) {
  const bool is_ring =
      algorithm == Algorithm::kRing && operation.collective == Collective::kAllreduce;
  const int chunks = is_ring ? ranks : 1;
  const Partition partition(operation.elements, operation.element_size, chunks);
  ChunkMap ranges;
  for (int i = 0; i < chunks; ++i) add(ranges, partition.chunk(i, bounds));
  return ranges;
}

}  // namespace nezha
