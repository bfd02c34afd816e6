// SPDX-License-Identifier: Apache-2.0
// nezha's Gloo device, under PyTorch's own gloo backend.
#pragma once

namespace nezha_torch {

// Whether GLOO_DEVICE_TRANSPORT=NEZHA has PyTorch's gloo backend send by nezha's device.
bool has_gloo_device();

}  // namespace nezha_torch
