// SPDX-License-Identifier: Apache-2.0
// nezha's Gloo device, under PyTorch's own gloo backend.
#pragma once

namespace nezha_torch {

// Returns whether this build registers nezha's device with PyTorch, so that
// GLOO_DEVICE_TRANSPORT=NEZHA makes PyTorch's gloo backend use it.
bool has_gloo_device();

}  // namespace nezha_torch
