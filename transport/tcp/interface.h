// What the kernel says of one network interface.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "transport/tcp/netlink.h"

namespace nezha::tcp {

struct InterfaceState {
  // The kernel's number of the interface; 0: there is none of the name. An interface that is made
  // anew has another one.
  int index = 0;
  bool is_running = false;  // it is up and has a carrier
};

// An error says nothing of the interface: the kernel could not be asked.
absl::StatusOr<InterfaceState> look_at(const std::string& interface, Netlink& netlink);

}  // namespace nezha::tcp
