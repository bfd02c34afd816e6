// SPDX-License-Identifier: Apache-2.0
// Division of many integers by one.
#pragma once

#include <cstddef>

#include "nezha/types.h"

namespace nezha {

// out[i] = in[i] / divisor, rounded towards zero, for an integer type and divisor > 0. `out` may be
// `in`; otherwise nothing overlaps. No alignment is required.
void divide_integers(DataType type, void* out, const void* in, size_t elements, int divisor);

}  // namespace nezha
