// Which algorithm serves which size and number of ranks best.
#pragma once

#include <cstddef>

#include "nezha/allreduce.h"

namespace nezha {

// For an allreduce of so many bytes. `over_tree`: of those that sum over the tree of ranks.
Algorithm best_algorithm(int ranks, size_t bytes, bool over_tree);

// Whether each element is summed over the tree of ranks (recursive_doubling.h), so that it has the
// same bits whichever of these algorithms sums it.
bool sums_over_tree(Algorithm algorithm);

// Whether a broadcast or a reduce of so many bytes goes over a tree, and not along the ring.
bool suits_tree(int ranks, size_t bytes);

}  // namespace nezha
