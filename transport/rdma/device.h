// SPDX-License-Identifier: Apache-2.0
// The rdma rail: a port of an RDMA device. Connections come about over the network interface that
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
  PortRange ports = {};  // to listen at, by TCP
  Cpus cpus = {};        // of a thread that handles what completes; empty: it has none
};

class RdmaDevice final : public InterfaceDevice {
 public:
  // Under Progress's lock, as all of it. `acceptor` outlives the device.
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

  // Shorter segments cost more in messages and READs than several of them under way gain.
  static constexpr size_t kLeastSegment = 256 << 10;  // bytes
  // Bytes per second: of a device that does not tell. A link learns its rate.
  static constexpr double kUnknownSpeed = 1.25e9;
  // A device that is gone, or a port that is down, is looked at so often.
  static constexpr Nanos kPause = kSecond;

  const PortRange ports_;
  const Verbs& verbs_;
  Progress::RailThread* thread_ = nullptr;
  double speed_ = 0;                  // bytes per second, nominal; 0: not known
  std::shared_ptr<Adapter> adapter_;  // null: the device is gone
  // Soft-iWARP says nothing of its port: the interface does. Null: another kind of device.
  std::unique_ptr<InterfaceMonitor> monitor_;
  std::unique_ptr<Lookout> lookout_;
  Alarm look_again_;
  std::string trouble_;  // the last that was told; empty: none since the device could be used
};

}  // namespace nezha::rdma
