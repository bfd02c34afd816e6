// SPDX-License-Identifier: Apache-2.0
// Division of many integers by one.
#pragma once

#include <cstddef>

#include "nezha/types.h"

namespace nezha {

// out[i] = in[i] / divisor, towards zero, divisor > 0, of an integer type. `out` may be `in`;
// otherwise nothing overlaps. No alignment asked for.
void divide_integers(DataType type, void* out, const void* in, size_t elements, int divisor);

}  // namespace nezha
