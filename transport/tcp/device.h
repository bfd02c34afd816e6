// SPDX-License-Identifier: Apache-2.0
// The tcp rail. Its links use the TCP connections of the handshakes.
#pragma once

#include <memory>

#include "absl/strings/string_view.h"
#include "common/cpus.h"
#include "transport/interface_device.h"
#include "transport/progress.h"

namespace nezha::tcp {

struct DeviceOptions : InterfaceOptions {
  // Cores of a thread that handles the device's links; empty: one may start by itself.
  Cpus cpus = {};
  Cpus near = {};  // cores near the NIC, for a thread that starts by itself
};

class TcpDevice final : public InterfaceDevice {
 public:
  // All calls are made under Progress's lock. `acceptor` outlives the device.
  static absl::StatusOr<std::unique_ptr<TcpDevice>> create(Progress& progress, Acceptor& acceptor,
                                                           Rail rail, const DeviceOptions& options);

 private:
  using InterfaceDevice::InterfaceDevice;
  absl::StatusOr<std::unique_ptr<LinkEnd>> new_end() override;
  absl::string_view kind() const override { return "tcp"; }

  Progress::RailThread* thread_ = nullptr;
};

}  // namespace nezha::tcp
