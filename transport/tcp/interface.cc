#include "transport/tcp/interface.h"

#include <net/if.h>

namespace nezha::tcp {

absl::StatusOr<InterfaceState> look_at(const std::string& interface, Netlink& netlink) {
  InterfaceState state;
  const absl::Status status = netlink.link(interface, [&](int type, NetlinkBytes body) {
    ifinfomsg info{};
    if (type != RTM_NEWLINK || !take(body, info)) return;
    state.index = info.ifi_index;
    state.is_running = (info.ifi_flags & IFF_UP) != 0 && (info.ifi_flags & IFF_RUNNING) != 0;
  });
  if (absl::IsNotFound(status)) return InterfaceState();
  if (!status.ok()) return status;
  return state;
}

}  // namespace nezha::tcp
