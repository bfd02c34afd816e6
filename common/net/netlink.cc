// SPDX-License-Identifier: Apache-2.0
#include "common/net/netlink.h"

#include <net/if.h>
#include <sys/socket.h>
#include <sys/time.h>

#include <cerrno>
#include <utility>
#include <vector>

#include "common/shortage.h"

namespace nezha::net {
namespace {

constexpr size_t kDatagram = 64 << 10;  // bytes; the kernel puts fewer into one
constexpr int kMostTries = 10;

absl::Status error_of(int error) {
  return system_error(error, "asking the kernel for the network interfaces");
}

}  // namespace

absl::StatusOr<Netlink> Netlink::open() {
  Socket socket(::socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE));
  if (socket.fd() < 0) return error_of(errno);
  const timeval patience{5, 0};
  setsockopt(socket.fd(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  return Netlink(std::move(socket));
}

absl::Status Netlink::links(Visit visit) {
  struct {
    nlmsghdr header;
    ifinfomsg info;
  } request{};
  return ask(&request, RTM_GETLINK, NLM_F_DUMP, sizeof request, visit);
}

absl::Status Netlink::link(const std::string& name, Visit visit) {
  if (name.size() >= IFNAMSIZ) return absl::NotFoundError("no interface has so long a name");
  struct {
    nlmsghdr header;
    ifinfomsg info;
    rtattr head;
    char name[IFNAMSIZ];
  } request{};
  request.head.rta_type = IFLA_IFNAME;
  request.head.rta_len = static_cast<uint16_t>(RTA_LENGTH(name.size() + 1));
  name.copy(request.name, IFNAMSIZ - 1);
  const size_t size = NLMSG_LENGTH(sizeof request.info) + RTA_SPACE(name.size() + 1);
  const absl::Status status = ask(&request, RTM_GETLINK, 0, size, visit);
  return absl::IsNotFound(status) ? absl::NotFoundError("there is no such interface") : status;
}

absl::Status Netlink::addresses(Visit visit) {
  struct {
    nlmsghdr header;
    ifaddrmsg info;
  } request{};
  return ask(&request, RTM_GETADDR, NLM_F_DUMP, sizeof request, visit);
}

// `request` begins with a header. The messages of the answer are visited only when all have
// arrived: if something changes while the kernel lists them, the kernel is asked again.
absl::Status Netlink::ask(void* request, uint16_t type, uint16_t flags, size_t size, Visit visit) {
  std::vector<std::pair<int, std::vector<char>>> messages;
  const auto keep = [&](int kind, NetlinkBytes body) {
    messages.emplace_back(kind, std::vector<char>(body.begin(), body.end()));
  };
  std::vector<char> buffer(kDatagram);
  for (int tries = 0; tries < kMostTries; ++tries) {
    messages.clear();
    nlmsghdr header{};
    header.nlmsg_len = static_cast<uint32_t>(size);
    header.nlmsg_type = type;
    header.nlmsg_flags = static_cast<uint16_t>(NLM_F_REQUEST | flags);
    header.nlmsg_seq = ++number_;
    std::memcpy(request, &header, sizeof header);
    if (absl::Status status = send_request(request, size); !status.ok()) return status;
    absl::StatusOr<bool> is_last = false;
    while (is_last.ok() && !*is_last) {
      const ssize_t length = recv(socket_.fd(), buffer.data(), buffer.size(), 0);
      if (length < 0 && errno == EINTR) continue;
      if (length < 0) return error_of(errno);
      is_last = read_some({buffer.data(), static_cast<size_t>(length)}, keep);
    }
    if (absl::IsAborted(is_last.status())) continue;
    if (!is_last.ok()) return is_last.status();
    for (const auto& [kind, body] : messages) visit(kind, body);
    return absl::OkStatus();
  }
  return absl::AbortedError("the network interfaces change faster than the kernel lists them");
}

absl::Status Netlink::send_request(const void* request, size_t size) {
  ssize_t sent = 0;
  do {
    sent = send(socket_.fd(), request, size, 0);
  } while (sent < 0 && errno == EINTR);
  return sent == static_cast<ssize_t>(size) ? absl::OkStatus() : error_of(errno);
}

// Handles one datagram of the answer. Returns true if it was the last, and kAborted if the answer
// is not consistent. Skips the remaining answer to an earlier question that failed.
absl::StatusOr<bool> Netlink::read_some(NetlinkBytes rest, Visit visit) {
  while (!rest.empty()) {
    nlmsghdr header{};
    if (rest.size() < sizeof header) return error_of(EPROTO);
    std::memcpy(&header, rest.data(), sizeof header);
    if (header.nlmsg_len < sizeof header || header.nlmsg_len > rest.size()) return error_of(EPROTO);
    NetlinkBytes body = rest.subspan(sizeof header, header.nlmsg_len - sizeof header);
    rest.remove_prefix(std::min(rest.size(), size_t{NLMSG_ALIGN(header.nlmsg_len)}));
    if (header.nlmsg_seq != number_) continue;
    if ((header.nlmsg_flags & NLM_F_DUMP_INTR) != 0) return absl::AbortedError("it changed");
    nlmsgerr error{};
    if (header.nlmsg_type == NLMSG_DONE) return true;
    if (header.nlmsg_type == NLMSG_ERROR) {
      return error_of(take(body, error) ? -error.error : EPROTO);
    }
    visit(header.nlmsg_type, body);
    if ((header.nlmsg_flags & NLM_F_MULTI) == 0) return true;
  }
  return false;
}

}  // namespace nezha::net
