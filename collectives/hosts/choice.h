// Which algorithm serves which size and number of ranks best.
#pragma once

#include <cstddef>

#include "nezha/allreduce.h"

namespace nezha {

// For an allreduce of so many bytes.
Algorithm best_algorithm(int ranks, size_t bytes);

}  // namespace nezha
