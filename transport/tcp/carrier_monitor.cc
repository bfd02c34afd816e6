#include "transport/tcp/carrier_monitor.h"

#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <sys/epoll.h>

#include <array>
#include <cerrno>

#include "common/shortage.h"

namespace nezha::tcp {

absl::StatusOr<std::unique_ptr<CarrierMonitor>> CarrierMonitor::create(Progress& progress,
                                                                       const std::string& interface,
                                                                       Changed changed) {
  std::unique_ptr<CarrierMonitor> monitor(
      new CarrierMonitor(progress, interface, std::move(changed)));
  monitor->socket_ =
      Socket(socket(AF_NETLINK, SOCK_RAW | SOCK_NONBLOCK | SOCK_CLOEXEC, NETLINK_ROUTE));
  sockaddr_nl address{};
  address.nl_family = AF_NETLINK;
  address.nl_groups = RTMGRP_LINK;
  if (monitor->socket_.fd() < 0 ||
      bind(monitor->socket_.fd(), reinterpret_cast<const sockaddr*>(&address), sizeof address) !=
          0) {
    return system_error(errno, "watching the interfaces");
  }
  if (absl::Status status = progress.add(monitor->socket_.fd(), monitor.get(), EPOLLIN);
      !status.ok()) {
    return status;
  }
  return monitor;
}

CarrierMonitor::~CarrierMonitor() { progress_.remove(socket_.fd()); }

// What the messages say is not read: any of them is a reason to look at the interface, and looking
// also works when the kernel had to drop some.
void CarrierMonitor::on_events(uint32_t) {
  std::array<char, 8192> ignored;
  while (recv(socket_.fd(), ignored.data(), ignored.size(), 0) > 0 || errno == ENOBUFS) {
  }
  changed_(interface_running(interface_));
}

}  // namespace nezha::tcp
