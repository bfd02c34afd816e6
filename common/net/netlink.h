// SPDX-License-Identifier: Apache-2.0
// Asks the kernel for links and addresses, by rtnetlink(7).
#pragma once

#include <linux/netlink.h>
#include <linux/rtnetlink.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/net/socket.h"

namespace nezha::net {

using NetlinkBytes = absl::Span<const char>;

// Copies the T at the beginning of `rest` to `head`, and removes it from `rest`. Returns false if
// `rest` is too short.
template <typename T>
bool take(NetlinkBytes& rest, T& head) {
  if (rest.size() < sizeof head) return false;
  std::memcpy(&head, rest.data(), sizeof head);
  rest.remove_prefix(std::min(rest.size(), size_t{NLMSG_ALIGN(sizeof head)}));
  return true;
}

// Calls `visit(type, value)` for each attribute; all of them are aligned to four bytes.
template <typename Visit>
void for_each_attribute(NetlinkBytes rest, Visit visit) {
  rtattr head{};
  while (rest.size() >= sizeof head) {
    std::memcpy(&head, rest.data(), sizeof head);
    if (head.rta_len < sizeof head || head.rta_len > rest.size()) return;
    visit(head.rta_type & NLA_TYPE_MASK, rest.subspan(sizeof head, head.rta_len - sizeof head));
    rest.remove_prefix(std::min(rest.size(), size_t{RTA_ALIGN(head.rta_len)}));
  }
}

// A socket that asks the kernel. Each call returns when the kernel has answered. The class is not
// thread-safe.
class Netlink {
 public:
  // Receives the messages of an answer: their kind (RTM_NEWLINK, ...) and the bytes after their
  // header.
  using Visit = absl::FunctionRef<void(int type, NetlinkBytes body)>;

  static absl::StatusOr<Netlink> open();

  // Visits all links of the network namespace.
  absl::Status links(Visit visit);
  // Visits the link of that name. Returns kNotFound if there is none.
  absl::Status link(const std::string& name, Visit visit);
  // Visits all addresses of the network namespace.
  absl::Status addresses(Visit visit);

 private:
  explicit Netlink(Socket socket) : socket_(std::move(socket)) {}
  absl::Status ask(void* request, uint16_t type, uint16_t flags, size_t size, Visit visit);
  absl::Status send_request(const void* request, size_t size);
  absl::StatusOr<bool> read_some(NetlinkBytes rest, Visit visit);

  Socket socket_;
  uint32_t number_ = 0;  // the latest question's
};

}  // namespace nezha::net
