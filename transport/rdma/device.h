// SPDX-License-Identifier: Apache-2.0
// The rdma rail: a port of an RDMA device. Its connections are made over the network interface that
// has the port's address.
#pragma once

#include <memory>
#include <string>

#include "absl/strings/string_view.h"
#include "common/cpus.h"
#include "common/port_range.h"
#include "transport/interface_device.h"
#include "transport/interface_monitor.h"
#include "transport/progress.h"
#include "transport/rdma/adapter.h"
#include "transport/rdma/greeting.h"
#include "transport/rdma/hca.h"
#include "transport/rdma/lookout.h"
#include "transport/rdma/verbs.h"

namespace nezha::rdma {

struct DeviceOptions {
  Wish wish;
  std::string rail;      // its name
  PortRange ports = {};  // the ports to listen at, by TCP
  Cpus cpus = {};        // the cores of a thread that handles completions; empty: it has none
};

class RdmaDevice final : public InterfaceDevice {
 public:
  // All calls are made under Progress's lock. `acceptor` outlives the device.
  static absl::StatusOr<std::unique_ptr<RdmaDevice>> create(Progress& progress, Acceptor& acceptor,
                                                            Rail rail, const DeviceOptions& options,
                                                            const Verbs& verbs = libibverbs());
  ~RdmaDevice() override;

  DeviceTraits traits() const override;

 private:
  RdmaDevice(Progress& progress, Acceptor& acceptor, Rail rail, InterfaceOptions interface,
             const DeviceOptions& options, const Verbs& verbs);
  absl::StatusOr<std::unique_ptr<LinkEnd>> new_end() override;
  absl::string_view kind() const override { return "rdma"; }
  size_t greeting_size() const override { return kGreetingSize; }
  absl::Status open_adapter(const Choice& choice);
  void close_adapter();
  absl::Status watch_interface(const Choice& choice);
  void on_moved() override { on_port(); }
  // The port, its addresses, or the device may have changed.
  void on_port();
  absl::Status port_state() const;
  void on_choice(const absl::StatusOr<Choice>& choice);
  void note_trouble(const absl::Status& status);

  // Shorter segments cost more in messages and READs than is gained by having several under way.
  static constexpr size_t kLeastSegment = 256 << 10;  // bytes
  // The speed, in bytes per second, that is assumed of a device that does not report its speed. A
  // link learns its rate.
  static constexpr double kUnknownSpeed = 1.25e9;
  // How often a device that is gone, or a port that is down, is looked at.
  static constexpr Nanos kPause = kSecond;

  const PortRange ports_;
  const Verbs& verbs_;
  Progress::RailThread* thread_ = nullptr;
  double speed_ = 0;                  // bytes per second, nominal; 0: not known
  std::shared_ptr<Adapter> adapter_;  // null: the device is gone
  // Soft-iWARP reports no changes of its port, but the interface does. It is null for another kind
  // of device.
  std::unique_ptr<InterfaceMonitor> monitor_;
  std::unique_ptr<Lookout> lookout_;
  Alarm look_again_;
  std::string trouble_;  // the last that was logged; empty: none since the device could be used
};

}  // namespace nezha::rdma
