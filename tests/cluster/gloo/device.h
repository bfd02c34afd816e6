// SPDX-License-Identifier: Apache-2.0
// The device with which Gloo's contexts are created: Gloo's own, or one from a library.
#pragma once

#include <gloo/transport/device.h>

#include <memory>

#include "cluster/gloo/options.h"

namespace nezha::gloo_cases {

// Throws std::runtime_error if the library cannot be loaded or lacks the function.
std::shared_ptr<gloo::transport::Device> make_device(const Options& options);

}  // namespace nezha::gloo_cases
