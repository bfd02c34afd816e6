#include "transport/tcp/interface_monitor.h"

#include <sys/epoll.h>

#include <array>
#include <cerrno>

#include "common/log.h"
#include "common/shortage.h"

namespace nezha::tcp {

absl::StatusOr<std::unique_ptr<InterfaceMonitor>> InterfaceMonitor::create(
    Progress& progress, const std::string& interface, Changed changed) {
  auto netlink = Netlink::open();
  if (!netlink.ok()) return netlink.status();
  std::unique_ptr<InterfaceMonitor> monitor(
      new InterfaceMonitor(progress, interface, *std::move(netlink), std::move(changed)));
  if (absl::Status status = monitor->subscribe(); !status.ok()) return status;
  const auto state = look_at(interface, monitor->netlink_);
  if (!state.ok()) return state.status();
  monitor->state_ = *state;
  return monitor;
}

absl::Status InterfaceMonitor::subscribe() {
  Socket made(socket(AF_NETLINK, SOCK_RAW | SOCK_NONBLOCK | SOCK_CLOEXEC, NETLINK_ROUTE));
  sockaddr_nl address{};
  address.nl_family = AF_NETLINK;
  address.nl_groups = RTMGRP_LINK | RTMGRP_IPV4_IFADDR | RTMGRP_IPV6_IFADDR;
  if (made.fd() < 0 ||
      bind(made.fd(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
    return system_error(errno, "watching the interfaces");
  }
  absl::Status status = progress_.add(made.fd(), this, EPOLLIN);
  if (status.ok()) notifications_ = std::move(made);
  return status;
}

InterfaceMonitor::~InterfaceMonitor() {
  if (notifications_.fd() >= 0) progress_.remove(notifications_.fd());
}

// What the messages say is not read: any of them is a reason to look at the interface, and looking
// also works when the kernel had to drop some.
void InterfaceMonitor::on_events(uint32_t) {
  std::array<char, 8192> ignored;
  while (recv(notifications_.fd(), ignored.data(), ignored.size(), 0) > 0 || errno == ENOBUFS) {
  }
  examine();
}

// A look that fails says nothing of the interface: what was known last stands.
void InterfaceMonitor::examine() {
  const auto state = look_at(interface_, netlink_);
  if (!state.ok()) {
    log().debug("{}: the interface is looked at again soon: {}", interface_,
                std::string(state.status().message()));
    return again_.start(now() + kLookAgain);
  }
  again_.cancel();
  state_ = *state;
  changed_(state_);
}

}  // namespace nezha::tcp
