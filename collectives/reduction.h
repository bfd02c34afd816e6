// SPDX-License-Identifier: Apache-2.0
// Reduction kernels: element-wise, vectorised, chosen at run time for the CPU at hand. The bits of
// their results do not depend on the CPU, nor on where in a vector an element is.
#pragma once

#include <cstddef>

#include "nezha/types.h"

namespace nezha {

// out[i] = a[i] op b[i]. `out` may be `a` or `b`; otherwise nothing overlaps. `elements` elements,
// no alignment asked for.
using Reduction = void (*)(void* out, const void* a, const void* b, size_t elements);

// An average's is the sum: what ends it is divide(). Null for what is no type or operation of
// nezha's own.
Reduction reduction(DataType type, ReduceOperation operation);

// out[i] = in[i] / ranks, ranks > 0: what makes an average of a sum. `out` may be `in`; otherwise
// nothing overlaps. Floating point: the quotient, rounded (of the 16-bit types: computed in float,
// and then rounded again). Integers: towards zero.
void divide(DataType type, void* out, const void* in, size_t elements, int ranks);

}  // namespace nezha
