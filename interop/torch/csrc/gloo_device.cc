// SPDX-License-Identifier: Apache-2.0
#include "interop/torch/csrc/gloo_device.h"

#ifdef NEZHA_TORCH_GLOO
#include <nezha/gloo.h>

#if __has_include(<torch/csrc/distributed/c10d/gloo/GlooDeviceFactory.hpp>)
#include <torch/csrc/distributed/c10d/gloo/GlooDeviceFactory.hpp>
#else
#include <torch/csrc/distributed/c10d/GlooDeviceFactory.hpp>
#endif

namespace c10d {
namespace {

// Ignores PyTorch's arguments (an interface or host name, and more in newer versions), which choose
// a single network for Gloo. NEZHA_RAILS names nezha's networks.
C10_REGISTER_CREATOR(GlooDeviceRegistry, NEZHA, [](const auto&...) { return nezha::glooDevice(); });

}  // namespace
}  // namespace c10d

bool nezha_torch::has_gloo_device() { return true; }
#else
bool nezha_torch::has_gloo_device() { return false; }
#endif
