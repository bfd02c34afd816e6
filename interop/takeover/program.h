// SPDX-License-Identifier: Apache-2.0
// What depends on the program that Gloo's functions are taken over in. interop/preload has the
// answers for a program that is linked to libgloo.so, and interop/horovod those for Horovod.
#pragma once

#include <gloo/transport/device.h>
#include <gloo/transport/tcp/attr.h>

#include <memory>
#include <optional>

#include "nezha/types.h"

namespace nezha::takeover {

// Returns nezha's device for a program that asks Gloo for a TCP device with these attributes, and
// null where Gloo's own device is to be made. Thread-safe.
std::shared_ptr<::gloo::transport::Device> device_for(
    const ::gloo::transport::tcp::attr& attributes);

// What elements are and what is done to them.
struct Reduction {
  DataType type;
  ReduceOperation operation;
};

// Returns nothing for a function that is not known to be one of nezha's own operations. The answer
// is the same on every rank. Thread-safe.
std::optional<Reduction> recognise(const ReduceFunction& function);

}  // namespace nezha::takeover
