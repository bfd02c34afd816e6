// SPDX-License-Identifier: Apache-2.0
#include "interop/torch/csrc/gloo_device.h"

#ifdef NEZHA_TORCH_GLOO
#include <nezha/gloo.h>

#include <string>
#include <torch/csrc/distributed/c10d/GlooDeviceFactory.hpp>

namespace c10d {
namespace {

// The interface or host name that PyTorch gives is Gloo's choice of one network. NEZHA_RAILS names
// nezha's.
std::shared_ptr<::gloo::transport::Device> make(const std::string& /*interface*/,
                                                const std::string& /*hostname*/) {
  return nezha::glooDevice();
}

C10_REGISTER_CREATOR(GlooDeviceRegistry, NEZHA, make);

}  // namespace
}  // namespace c10d

bool nezha_torch::has_gloo_device() { return true; }
#else
bool nezha_torch::has_gloo_device() { return false; }
#endif
