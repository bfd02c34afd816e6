// SPDX-License-Identifier: Apache-2.0
// Tells the versions of PyTorch apart.
#pragma once

#include <torch/version.h>

// Tells whether PyTorch is of this version or a later one.
#define NEZHA_TORCH_AT_LEAST(major, minor) \
  (TORCH_VERSION_MAJOR > (major) ||        \
   (TORCH_VERSION_MAJOR == (major) && TORCH_VERSION_MINOR >= (minor)))
