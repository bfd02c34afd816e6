// Which algorithm serves which size and number of ranks best.
#pragma once

#include <cstddef>

#include "nezha/allreduce.h"

namespace nezha {

// For an allreduce of so many bytes.
Algorithm best_algorithm(int ranks, size_t bytes);

// Whether a broadcast or a reduce of so many bytes goes over a tree, and not along the ring.
bool suits_tree(size_t bytes);

}  // namespace nezha
