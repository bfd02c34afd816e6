// SPDX-License-Identifier: Apache-2.0
// Watches an interface, and tells of each change that the kernel reports.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "common/net/interface.h"
#include "common/net/netlink.h"
#include "common/net/socket.h"
#include "transport/progress.h"

namespace nezha {

class InterfaceMonitor final : EventHandler {
 public:
  using Changed = std::function<void(const net::InterfaceState& state)>;

  // All calls are made under Progress's lock. `changed` is called with the interface's state
  // whenever the kernel reports a change.
  static absl::StatusOr<std::unique_ptr<InterfaceMonitor>> create(Progress& progress,
                                                                  const std::string& interface,
                                                                  Changed changed);
  ~InterfaceMonitor() override;

  // Returns the state when the interface was last looked at.
  const net::InterfaceState& state() const { return state_; }

 private:
  InterfaceMonitor(Progress& progress, std::string interface, net::Netlink netlink, Changed changed)
      : progress_(progress),
        interface_(std::move(interface)),
        netlink_(std::move(netlink)),
        changed_(std::move(changed)),
        again_(progress, [this] { examine(); }) {}
  absl::Status subscribe();
  void on_events(uint32_t events) override;
  bool is_about_it(net::NetlinkBytes rest) const;
  bool is_its_link(net::NetlinkBytes body) const;
  bool is_its_address(net::NetlinkBytes body) const;
  void examine();

  // The wait after a look that failed, for example for want of memory.
  static constexpr Nanos kLookAgain = 100 * kMillisecond;

  Progress& progress_;
  std::string interface_;
  net::Netlink netlink_;  // open all the time: a look needs no new descriptor
  Changed changed_;
  Alarm again_;
  net::Socket notifications_;
  net::InterfaceState state_;
};

}  // namespace nezha
