// SPDX-License-Identifier: Apache-2.0
// Tensor functions that are the package's own, and none of the program's.
#pragma once

#include <c10/core/GradMode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

namespace nezha_torch {

// As long as it lives, the tensor functions that this thread calls record no gradients, and the
// program's dispatch modes do not see them. Such a mode traces the program (make_fx), and would
// take the copies of a collective that the thread waits for to be the program's.
struct Unrecorded {
  c10::NoGradGuard no_grad;
  c10::impl::ExcludeDispatchKeyGuard no_modes{c10::python_ks};
};

}  // namespace nezha_torch
