// SPDX-License-Identifier: Apache-2.0
// Functions that depend on the program whose Gloo functions are taken over. interop/preload
// implements them for a program that is linked to libgloo.so, and interop/horovod for Horovod.
#pragma once

#include <gloo/transport/device.h>
#include <gloo/transport/tcp/attr.h>

#include <memory>
#include <optional>

#include "nezha/types.h"

namespace nezha::takeover {

// Returns nezha's device for a program that asks Gloo for a TCP device with these attributes, or
// null if the program is to get Gloo's own device. Thread-safe.
std::shared_ptr<::gloo::transport::Device> device_for(
    const ::gloo::transport::tcp::attr& attributes);

// The type of the elements, and the operation that combines them.
struct Reduction {
  DataType type;
  ReduceOperation operation;
};

// Returns the reduction that the function carries out, or nothing if it is not known to be one of
// nezha's own operations. The answer is the same on every rank. Thread-safe.
std::optional<Reduction> recognise(const ReduceFunction& function);

}  // namespace nezha::takeover
