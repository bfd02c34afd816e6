// SPDX-License-Identifier: Apache-2.0
// How one operation combines elements: by a kernel, or by the user's own function.
#pragma once

#include <cstddef>

#include "absl/status/status.h"
#include "collectives/reduction.h"
#include "nezha/types.h"

namespace nezha {

// Copied freely; the user's function must outlive it. Thread-safe, as far as that function is.
class Reducer {
 public:
  // Of `ranks` ranks' elements. `function`: of kCustom only, null otherwise.
  Reducer(DataType type, ReduceOperation operation, const ReduceFunction* function, int ranks);

  // Whether this calls the user's function, which is for one thread at a time.
  bool is_custom() const { return function_ != nullptr; }

  // out[i] = a[i] op b[i], not final. `out` may be `a` or `b`. The error is the user's function's,
  // which threw.
  absl::Status combine(void* out, const void* a, const void* b, size_t elements) const;

  // The last combination of these elements: what is written to `out` are final values only, an
  // average's too. `out` may be `a` or `b`. So may `scratch`, as large, whose contents are lost.
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
