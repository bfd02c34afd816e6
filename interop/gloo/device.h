// SPDX-License-Identifier: Apache-2.0
// Gloo's device over all rails; see nezha/gloo.h.
#pragma once

#include <gloo/transport/device.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace nezha::interop {

class GlooDevice final : public ::gloo::transport::Device,
                         public std::enable_shared_from_this<GlooDevice> {
 public:
  explicit GlooDevice(std::vector<std::string> rails) : rails_(std::move(rails)) {}

  std::string str() const override;
  const std::string& getPCIBusID() const override { return pci_bus_; }
  std::shared_ptr<::gloo::transport::Context> createContext(int rank, int size) override;

 private:
  const std::vector<std::string> rails_;
  const std::string pci_bus_;  // empty: the device has no single PCI bus
};

}  // namespace nezha::interop
