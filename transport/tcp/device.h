// SPDX-License-Identifier: Apache-2.0
// The tcp rail: links over the connections that it is made of.
#pragma once

#include <memory>

#include "absl/strings/string_view.h"
#include "common/cpus.h"
#include "transport/interface_device.h"
#include "transport/progress.h"

namespace nezha::tcp {

struct DeviceOptions : InterfaceOptions {
  // Of a thread that handles its links; empty: one may start by itself, on any core.
  Cpus cpus = {};
};

class TcpDevice final : public InterfaceDevice {
 public:
  // Under Progress's lock, as all of it. `acceptor` outlives the device.
  static absl::StatusOr<std::unique_ptr<TcpDevice>> create(Progress& progress, Acceptor& acceptor,
                                                           Rail rail, const DeviceOptions& options);

 private:
  using InterfaceDevice::InterfaceDevice;
  absl::StatusOr<std::unique_ptr<LinkEnd>> new_end() override;
  absl::string_view kind() const override { return "tcp"; }

  Progress::RailThread* thread_ = nullptr;
};

}  // namespace nezha::tcp
