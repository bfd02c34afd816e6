// SPDX-License-Identifier: Apache-2.0
// Replaces Gloo's function that makes a TCP device, so that the program gets nezha's device.
#include <gloo/transport/tcp/device.h>

#include <memory>

#include "interop/takeover/original.h"
#include "interop/takeover/program.h"

namespace gloo::transport::tcp {

std::shared_ptr<::gloo::transport::Device> CreateDevice(const struct attr& attr) {
  if (auto device = nezha::takeover::device_for(attr)) return device;
  using Create = std::shared_ptr<::gloo::transport::Device>(const struct attr&);
  return nezha::takeover::original<Create>(nezha::takeover::kCreateDevice)(attr);
}

}  // namespace gloo::transport::tcp
