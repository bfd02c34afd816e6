// SPDX-License-Identifier: Apache-2.0
#include "flare_offload/udp/udp_port.h"

#include <linux/filter.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/ip.h>
#include <netinet/udp.h>
#include <sys/ioctl.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/net/interface.h"
#include "common/shortage.h"

namespace nezha::flare {
namespace {

// Room for what all hosts may have in flight while this process waits for a core. Beyond the
// system's limit (net.core.rmem_max) only root gets it; what the kernel gives is enough to go on.
constexpr int kSocketBuffer = 8 << 20;

void widen_buffer(int fd, int forced, int plain) {
  if (setsockopt(fd, SOL_SOCKET, forced, &kSocketBuffer, sizeof kSocketBuffer) != 0) {
    setsockopt(fd, SOL_SOCKET, plain, &kSocketBuffer, sizeof kSocketBuffer);
  }
}

// Makes a datagram that does not fit the interface an error at once, instead of fragments that may
// each be lost. ICMP messages about the path's MTU are ignored: anyone can forge them.
void forbid_fragments(int fd, int family) {
  static_assert(IP_PMTUDISC_PROBE == IPV6_PMTUDISC_PROBE);
  constexpr int kNever = IP_PMTUDISC_PROBE;
  if (family == AF_INET6) {
    setsockopt(fd, IPPROTO_IPV6, IPV6_MTU_DISCOVER, &kNever, sizeof kNever);
  } else {
    setsockopt(fd, IPPROTO_IP, IP_MTU_DISCOVER, &kNever, sizeof kNever);
  }
}

// `shared_by` is the option by which other sockets may be at the address, too, or 0 if none may.
absl::StatusOr<net::Socket> bound_socket(const Address& address, int shared_by,
                                         const std::string& interface = "") {
  constexpr int kOn = 1;
  net::Socket socket(::socket(address.family(), SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (socket.fd() < 0) return system_error(errno, "making a UDP socket");
  if (shared_by != 0) setsockopt(socket.fd(), SOL_SOCKET, shared_by, &kOn, sizeof kOn);
  if (!interface.empty()) {
    absl::Status status = net::bind_to_interface(socket.fd(), interface);
    if (!status.ok()) return status;
  }
  if (bind(socket.fd(), address.sockaddr_ptr(), address.length()) != 0) {
    const int error = errno;
    const std::string what = absl::StrCat("binding a UDP socket to ", address.str());
    if (error != EADDRINUSE) return system_error(error, what);
    // This code tells net::open_in_range() to try another port.
    return absl::AlreadyExistsError(absl::StrCat(what, ": ", strerror(error)));
  }
  widen_buffer(socket.fd(), SO_RCVBUFFORCE, SO_RCVBUF);
  widen_buffer(socket.fd(), SO_SNDBUFFORCE, SO_SNDBUF);
  forbid_fragments(socket.fd(), address.family());
  setsockopt(socket.fd(), SOL_UDP, UDP_GRO, &kOn, sizeof kOn);  // without it trains come apart
  return socket;
}

// Returns the index of the interface that has the address, or 0 if no single one has it.
absl::StatusOr<unsigned> interface_of(const Address& address) {
  auto netlink = net::Netlink::open();
  if (!netlink.ok()) return netlink.status();
  const auto addresses = net::assigned_addresses(*netlink);
  if (!addresses.ok()) return addresses.status();
  for (const net::AssignedAddress& it : *addresses) {
    Address known = it.address;
    known.set_port(address.port());
    if (known == address) return static_cast<unsigned>(it.index);
  }
  return 0;
}

// Has the kernel choose among the sockets at this one's address (SO_ATTACH_REUSEPORT_CBPF in
// socket(7)), in the order in which they were bound. A datagram without such a byte goes to the
// first.
absl::Status choose_by_byte(int fd, size_t count, size_t place) {
  std::array<sock_filter, 3> program = {
      {BPF_STMT(BPF_LD | BPF_B | BPF_ABS, static_cast<uint32_t>(place)),
       BPF_STMT(BPF_ALU | BPF_MOD | BPF_K, static_cast<uint32_t>(count)),
       BPF_STMT(BPF_RET | BPF_A, 0)}};
  const sock_fprog filter = {program.size(), program.data()};
  if (setsockopt(fd, SOL_SOCKET, SO_ATTACH_REUSEPORT_CBPF, &filter, sizeof filter) == 0) {
    return absl::OkStatus();
  }
  return absl::UnimplementedError(
      absl::StrCat("the kernel cannot choose among UDP sockets by a program"
                   " (SO_ATTACH_REUSEPORT_CBPF: ",
                   strerror(errno), ")"));
}

// Returns the size of a received train's datagrams, or 0 if it is but one.
size_t segment_size(msghdr& header) {
  for (cmsghdr* control = CMSG_FIRSTHDR(&header); control != nullptr;
       control = CMSG_NXTHDR(&header, control)) {
    if (control->cmsg_level == SOL_UDP && control->cmsg_type == UDP_GRO) {
      int size = 0;
      std::memcpy(&size, CMSG_DATA(control), sizeof size);
      return size > 0 ? static_cast<size_t>(size) : 0;
    }
  }
  return 0;
}

void set_segment_size(msghdr& header, size_t size, std::byte* control_bytes) {
  header.msg_control = control_bytes;
  header.msg_controllen = CMSG_SPACE(sizeof(uint16_t));
  cmsghdr* control = CMSG_FIRSTHDR(&header);
  control->cmsg_level = SOL_UDP;
  control->cmsg_type = UDP_SEGMENT;
  control->cmsg_len = CMSG_LEN(sizeof(uint16_t));
  const auto segment = static_cast<uint16_t>(size);
  std::memcpy(CMSG_DATA(control), &segment, sizeof segment);
}

}  // namespace

UdpCounters& UdpCounters::operator+=(const UdpCounters& other) {
  received += other.received;
  received_bytes += other.received_bytes;
  sent += other.sent;
  sent_bytes += other.sent_bytes;
  not_sent += other.not_sent;
  for (size_t i = 0; i < kSizes; ++i) batches[i] += other.batches[i];
  return *this;
}

absl::StatusOr<UdpPort> UdpPort::open(const Address& address, size_t datagram) {
  absl::StatusOr<net::Socket> socket = bound_socket(address, 0);
  if (!socket.ok()) return socket.status();
  return UdpPort(*std::move(socket), address.family(), datagram);
}

absl::StatusOr<UdpPort> UdpPort::open_on(const std::string& interface, const Address& address,
                                         const PortRange& ports, size_t datagram) {
  Address at = address;
  auto socket = net::open_in_range(ports, absl::StrCat(address.host(), " on ", interface),
                                   [&](uint16_t port) {
                                     at.set_port(port);
                                     return bound_socket(at, 0, interface);
                                   });
  if (!socket.ok()) return socket.status();
  return UdpPort(*std::move(socket), address.family(), datagram);
}

absl::StatusOr<UdpPort> UdpPort::join(const Address& group, const std::string& interface,
                                      size_t datagram) {
  absl::StatusOr<net::Socket> socket = bound_socket(group, SO_REUSEADDR, interface);
  if (!socket.ok()) return socket.status();
  ifreq named{};
  interface.copy(named.ifr_name, IFNAMSIZ - 1);
  if (ioctl(socket->fd(), SIOCGIFINDEX, &named) != 0) {
    return system_error(errno, absl::StrCat("looking for the interface ", interface));
  }
  const group_req membership = {static_cast<uint32_t>(named.ifr_ifindex), group.storage};
  const int level = group.family() == AF_INET6 ? IPPROTO_IPV6 : IPPROTO_IP;
  if (setsockopt(socket->fd(), level, MCAST_JOIN_GROUP, &membership, sizeof membership) != 0) {
    return absl::FailedPreconditionError(
        absl::StrCat("joining the group ", group.str(), " on ", interface, ": ", strerror(errno)));
  }
  return UdpPort(*std::move(socket), group.family(), datagram);
}

absl::StatusOr<std::vector<UdpPort>> UdpPort::open_many(const Address& address, size_t datagram,
                                                        size_t count, size_t place) {
  std::vector<UdpPort> ports;
  if (count == 1) {
    absl::StatusOr<UdpPort> only = open(address, datagram);
    if (!only.ok()) return only.status();
    ports.push_back(*std::move(only));
    return ports;
  }
  // Sockets with SO_REUSEPORT could join those of another process at the address. A socket without
  // it fails then; it also finds the port if any will do.
  absl::StatusOr<net::Socket> alone = bound_socket(address, 0);
  if (!alone.ok()) return alone.status();
  const absl::StatusOr<Address> at = net::local_address(alone->fd());
  if (!at.ok()) return at.status();
  alone = net::Socket();
  for (size_t i = 0; i < count; ++i) {
    absl::StatusOr<net::Socket> socket = bound_socket(*at, SO_REUSEPORT);
    if (!socket.ok()) return socket.status();
    ports.push_back(UdpPort(*std::move(socket), address.family(), datagram));
  }
  if (absl::Status status = choose_by_byte(ports[0].fd(), count, place); !status.ok())
    return status;
  return ports;
}

UdpPort::UdpPort(net::Socket socket, int family, size_t datagram)
    : socket_(std::move(socket)),
      family_(family),
      datagram_(datagram),
      in_(kTrains * kMaxTrain),
      senders_(kTrains),
      in_controls_(kTrains),
      in_parts_(kTrains),
      in_headers_(kTrains),
      out_(kBatch * datagram) {
  for (size_t i = 0; i < kTrains; ++i) {
    in_parts_[i] = {&in_[i * kMaxTrain], kMaxTrain};
    in_headers_[i].msg_hdr.msg_iov = &in_parts_[i];
    in_headers_[i].msg_hdr.msg_iovlen = 1;
    in_headers_[i].msg_hdr.msg_name = &senders_[i].storage;
    in_headers_[i].msg_hdr.msg_control = in_controls_[i].bytes;
  }
}

// Members on this host receive the datagrams, too (IP_MULTICAST_LOOP is on), which costs nothing if
// there are none.
absl::Status UdpPort::reach_groups() const {
  constexpr int kHops = 8;  // enough for a fabric, too few to leave it
  const absl::StatusOr<Address> here = net::local_address(fd());
  if (!here.ok()) return here.status();
  const absl::StatusOr<unsigned> found = interface_of(*here);
  if (!found.ok()) return found.status();
  const auto index = static_cast<int>(*found);
  ip_mreqn by{};
  by.imr_ifindex = index;
  const bool is_set =
      family_ == AF_INET6
          ? setsockopt(fd(), IPPROTO_IPV6, IPV6_MULTICAST_IF, &index, sizeof index) == 0 &&
                setsockopt(fd(), IPPROTO_IPV6, IPV6_MULTICAST_HOPS, &kHops, sizeof kHops) == 0
          : setsockopt(fd(), IPPROTO_IP, IP_MULTICAST_IF, &by, sizeof by) == 0 &&
                setsockopt(fd(), IPPROTO_IP, IP_MULTICAST_TTL, &kHops, sizeof kHops) == 0;
  if (is_set) return absl::OkStatus();
  return system_error(errno, absl::StrCat("sending to groups from ", here->str()));
}

size_t UdpPort::receive(
    absl::FunctionRef<void(absl::Span<const std::byte>, const Address&)> handle) {
  for (mmsghdr& header : in_headers_) {
    header.msg_hdr.msg_namelen = sizeof(sockaddr_storage);
    header.msg_hdr.msg_controllen = sizeof(Control);
  }
  const int trains = recvmmsg(fd(), in_headers_.data(), kTrains, MSG_DONTWAIT, nullptr);
  size_t count = 0;
  for (int i = 0; i < trains; ++i) {
    count += hand_out(static_cast<size_t>(i), handle);
    counters_.received_bytes += in_headers_[static_cast<size_t>(i)].msg_len;
  }
  if (count == 0) return 0;
  counters_.received += count;
  const auto size = static_cast<size_t>(std::bit_width(count)) - 1;
  ++counters_.batches[std::min(size, UdpCounters::kSizes - 1)];
  return count;
}

size_t UdpPort::hand_out(
    size_t train, absl::FunctionRef<void(absl::Span<const std::byte>, const Address&)> handle) {
  const absl::Span<const std::byte> bytes(&in_[train * kMaxTrain], in_headers_[train].msg_len);
  const size_t segment = segment_size(in_headers_[train].msg_hdr);
  const size_t size = segment == 0 ? std::max<size_t>(bytes.size(), 1) : segment;
  size_t count = 0;
  size_t offset = 0;
  do {  // runs once for an empty datagram, too
    const absl::Span<const std::byte> datagram = bytes.subspan(offset, size);
    if (datagram.size() <= datagram_) handle(datagram, senders_[train]);
    ++count;
    offset += size;
  } while (offset < bytes.size());
  return count;
}

std::byte* UdpPort::buffer() {
  if (queued_ == kBatch) flush();
  return &out_[queued_ * datagram_];
}

void UdpPort::send(size_t size, absl::Span<const Address> to) {
  const iovec datagram = {&out_[queued_++ * datagram_], size};
  for (const Address& address : to) receiver_at(address).datagrams.push_back(datagram);
}

UdpPort::Receiver& UdpPort::receiver_at(const Address& address) {
  for (size_t i = 0; i < receivers_used_; ++i) {
    if (receivers_[i]->address == address) return *receivers_[i];
  }
  if (receivers_used_ == receivers_.size()) receivers_.push_back(std::make_unique<Receiver>());
  Receiver& fresh = *receivers_[receivers_used_++];
  fresh.address = address;
  return fresh;
}

// Groups a receiver's datagrams into messages. A train has datagrams of one size, of which the last
// one may be shorter.
void UdpPort::couple(Receiver& receiver) {
  const std::vector<iovec>& datagrams = receiver.datagrams;
  for (size_t first = 0; first < datagrams.size();) {
    const size_t size = datagrams[first].iov_len;
    size_t count = 1;
    while (couples_ && size > 0 && first + count < datagrams.size() &&
           datagrams[first + count - 1].iov_len == size &&
           datagrams[first + count].iov_len <= size && datagrams[first + count].iov_len > 0 &&
           (count + 1) * size <= kTrainToSend) {
      ++count;
    }
    messages_.push_back({&receiver, first, count});
    first += count;
  }
}

// Makes single datagrams of the messages from `first` on.
void UdpPort::uncouple(size_t first) {
  const std::vector<Message> trains(messages_.begin() + static_cast<ptrdiff_t>(first),
                                    messages_.end());
  messages_.resize(first);
  for (const Message& train : trains) {
    for (size_t i = 0; i < train.count; ++i) messages_.push_back({train.to, train.first + i, 1});
  }
}

int UdpPort::send_from(size_t first) {
  const size_t count = messages_.size() - first;
  out_headers_.assign(count, {});
  out_controls_.resize(count);
  for (size_t i = 0; i < count; ++i) {
    const Message& message = messages_[first + i];
    msghdr& header = out_headers_[i].msg_hdr;
    header.msg_name = &message.to->address.storage;
    header.msg_namelen = message.to->address.length();
    header.msg_iov = &message.to->datagrams[message.first];
    header.msg_iovlen = message.count;
    if (message.count > 1) {
      set_segment_size(header, header.msg_iov->iov_len, out_controls_[i].bytes);
    }
  }
  const int sent = sendmmsg(fd(), out_headers_.data(), static_cast<unsigned>(count), MSG_DONTWAIT);
  return sent < 0 ? -errno : sent;
}

void UdpPort::count_out(const Message& message, bool is_sent) {
  (is_sent ? counters_.sent : counters_.not_sent) += message.count;
  if (!is_sent) return;
  const iovec* const first = &message.to->datagrams[message.first];
  for (const iovec* it = first; it != first + message.count; ++it) {
    counters_.sent_bytes += it->iov_len;
  }
}

void UdpPort::flush() {
  for (size_t i = 0; i < receivers_used_; ++i) couple(*receivers_[i]);
  for (size_t next = 0; next < messages_.size();) {
    const int result = send_from(next);
    if (result == -EIO && couples_) {  // the device cannot cut trains
      couples_ = false;
      uncouple(next);
    } else if (result != -EINTR) {
      // An error is about the first message: no room for any, or a problem with its address alone.
      const bool is_full = result == -EAGAIN;
      const size_t end =
          is_full ? messages_.size() : next + static_cast<size_t>(std::max(result, 1));
      for (; next < end; ++next) count_out(messages_[next], result > 0);
    }
  }
  messages_.clear();
  for (size_t i = 0; i < receivers_used_; ++i) receivers_[i]->datagrams.clear();
  receivers_used_ = 0;
  queued_ = 0;
}

absl::StatusOr<size_t> path_mtu(const Address& to, const std::string& interface) {
  const net::Socket probe(::socket(to.family(), SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (probe.fd() < 0) return system_error(errno, "making a UDP socket");
  if (!interface.empty()) {
    if (absl::Status bound = net::bind_to_interface(probe.fd(), interface); !bound.ok()) {
      return bound;
    }
  }
  int mtu = 0;
  socklen_t length = sizeof mtu;
  const bool is_v6 = to.family() == AF_INET6;
  if (connect(probe.fd(), to.sockaddr_ptr(), to.length()) != 0 ||
      getsockopt(probe.fd(), is_v6 ? IPPROTO_IPV6 : IPPROTO_IP, is_v6 ? IPV6_MTU : IP_MTU, &mtu,
                 &length) != 0) {
    return system_error(errno, absl::StrCat("looking for a route to ", to.str()));
  }
  return static_cast<size_t>(mtu);
}

}  // namespace nezha::flare
