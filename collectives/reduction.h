// Reduction kernels: element-wise, vectorised, chosen at run time for the CPU at hand.
#pragma once

#include <cstddef>

#include "nezha/types.h"

namespace nezha {

// out[i] = a[i] op b[i]. `out` may be `a` or `b`; otherwise nothing overlaps. `elements` elements,
// no alignment asked for.
using Reduction = void (*)(void* out, const void* a, const void* b, size_t elements);

Reduction reduction(DataType type, ReduceOperation operation);

}  // namespace nezha
