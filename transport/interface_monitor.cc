// SPDX-License-Identifier: Apache-2.0
#include "transport/interface_monitor.h"

#include <sys/epoll.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "common/log.h"
#include "common/shortage.h"

namespace nezha {

absl::StatusOr<std::unique_ptr<InterfaceMonitor>> InterfaceMonitor::create(
    Progress& progress, const std::string& interface, Changed changed) {
  auto netlink = net::Netlink::open();
  if (!netlink.ok()) return netlink.status();
  std::unique_ptr<InterfaceMonitor> monitor(
      new InterfaceMonitor(progress, interface, *std::move(netlink), std::move(changed)));
  if (absl::Status status = monitor->subscribe(); !status.ok()) return status;
  const auto state = net::look_at(interface, monitor->netlink_);
  if (!state.ok()) return state.status();
  monitor->state_ = *state;
  return monitor;
}

absl::Status InterfaceMonitor::subscribe() {
  net::Socket made(socket(AF_NETLINK, SOCK_RAW | SOCK_NONBLOCK | SOCK_CLOEXEC, NETLINK_ROUTE));
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

// Looks at the interface if a message is about it, or if the kernel says that it had to drop
// messages. Looking takes a lock of the kernel's, so messages about other interfaces are no reason.
void InterfaceMonitor::on_events(uint32_t) {
  std::array<char, 16384> buffer;
  bool is_concerned = false;
  for (;;) {
    const ssize_t length = recv(notifications_.fd(), buffer.data(), buffer.size(), 0);
    if (length > 0) {
      is_concerned |= is_about_it({buffer.data(), static_cast<size_t>(length)});
    } else if (length < 0 && errno == ENOBUFS) {
      is_concerned = true;
    } else {
      break;
    }
  }
  if (is_concerned) examine();
}

bool InterfaceMonitor::is_about_it(net::NetlinkBytes rest) const {
  while (!rest.empty()) {
    nlmsghdr header{};
    if (rest.size() < sizeof header) return true;  // cut short: it may be about it
    std::memcpy(&header, rest.data(), sizeof header);
    if (header.nlmsg_len < sizeof header || header.nlmsg_len > rest.size()) return true;
    net::NetlinkBytes body = rest.subspan(sizeof header, header.nlmsg_len - sizeof header);
    rest.remove_prefix(std::min(rest.size(), size_t{NLMSG_ALIGN(header.nlmsg_len)}));
    const bool is_link = header.nlmsg_type == RTM_NEWLINK || header.nlmsg_type == RTM_DELLINK;
    if (is_link ? is_its_link(body) : is_its_address(body)) return true;
  }
  return false;
}

// The name counts as well as the index: the interface may have been made anew, or renamed.
bool InterfaceMonitor::is_its_link(net::NetlinkBytes body) const {
  ifinfomsg info{};
  if (!net::take(body, info)) return true;
  bool is_its = info.ifi_index == state_.index;
  net::for_each_attribute(body, [&](int kind, net::NetlinkBytes value) {
    if (kind != IFLA_IFNAME) return;
    is_its |= interface_ == std::string(value.data(), strnlen(value.data(), value.size()));
  });
  return is_its;
}

bool InterfaceMonitor::is_its_address(net::NetlinkBytes body) const {
  ifaddrmsg info{};
  return !net::take(body, info) || static_cast<int>(info.ifa_index) == state_.index;
}

// A look that fails shows nothing about the interface, so the last known state stands.
void InterfaceMonitor::examine() {
  const auto state = net::look_at(interface_, netlink_);
  if (!state.ok()) {
    log().debug(
        "{}: the state of the interface could not be read, and nezha will try again soon: {}",
        interface_, std::string(state.status().message()));
    return again_.start(now() + kLookAgain);
  }
  again_.cancel();
  state_ = *state;
  changed_(state_);
}

}  // namespace nezha
