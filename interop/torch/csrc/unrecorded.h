// SPDX-License-Identifier: Apache-2.0
// Hides the package's own calls of tensor functions from the program.
#pragma once

#include <c10/core/GradMode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

namespace nezha_torch {

// While this lives, the tensor functions that this thread calls record no gradients, and the
// program's dispatch modes do not see them. A mode that traces the program (make_fx) would
// otherwise record the copies of a collective that the thread waits for as part of the program.
struct Unrecorded {
  c10::NoGradGuard no_grad;
  c10::impl::ExcludeDispatchKeyGuard no_modes{c10::python_ks};
};

}  // namespace nezha_torch
