// SPDX-License-Identifier: Apache-2.0
// How one operation combines elements: by a kernel, or by the user's own function.
#pragma once

#include <cstddef>

#include "absl/status/status.h"
#include "collectives/reduction.h"
#include "nezha/types.h"

namespace nezha {

// Combines elements. Objects may be copied freely, and the user's function must outlive them.
// Thread-safe, as far as that function is.
class Reducer {
 public:
  // Combines the elements of `ranks` ranks. `function` is the user's for kCustom, and null
  // otherwise.
  Reducer(DataType type, ReduceOperation operation, const ReduceFunction* function, int ranks);

  // Returns whether this calls the user's function, which only one thread at a time may call.
  bool is_custom() const { return function_ != nullptr; }

  // out[i] = a[i] op b[i], not final. `out` may be `a` or `b`. Fails only if the user's function
  // throws.
  absl::Status combine(void* out, const void* a, const void* b, size_t elements) const;

  // Combines these elements for the last time: it writes only final values to `out`, for an average
  // too. `out` may be `a` or `b`. `scratch` is as large as `out`, may also be `a` or `b`, and loses
  // its contents.
  absl::Status finish(void* out, void* scratch, const void* a, const void* b,
                      size_t elements) const;

 private:
  DataType type_;
  bool is_average_;
  int ranks_;
  Reduction reduction_;
  const ReduceFunction* function_;
};

}  // namespace nezha
