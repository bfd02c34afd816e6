// SPDX-License-Identifier: Apache-2.0
// Reduction kernels: element-wise, vectorised, chosen at run time for the CPU at hand. The bits of
// their results do not depend on the CPU, nor on where in a vector an element is.
#pragma once

#include <cstddef>

#include "nezha/types.h"

namespace nezha {

// out[i] = a[i] op b[i] for `elements` elements. `out` may be `a` or `b`; otherwise nothing
// overlaps. No alignment is required.
using Reduction = void (*)(void* out, const void* a, const void* b, size_t elements);

// Returns the kernel. For an average it computes the sum, which divide() then turns into the
// average. Returns null if the type or the operation is not one of nezha's own.
Reduction reduction(DataType type, ReduceOperation operation);

// out[i] = in[i] / ranks, ranks > 0: turns a sum into an average. `out` may be `in`; otherwise
// nothing overlaps. Floating point: the rounded quotient (16-bit types are computed in float, and
// then rounded again). Integers: rounded towards zero.
void divide(DataType type, void* out, const void* in, size_t elements, int ranks);

}  // namespace nezha
