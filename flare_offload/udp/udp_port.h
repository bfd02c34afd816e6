// SPDX-License-Identifier: Apache-2.0
// A UDP socket that receives and sends datagrams in batches, and datagrams to one receiver or from
// one sender as trains: a software switch spends its time on system calls and on the kernel's work
// for each packet, not on additions. A train passes the kernel as one packet and is cut into
// datagrams at its end (UDP_SEGMENT, UDP_GRO: udp(7)).
#pragma once

#include <sys/socket.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/net/socket.h"
#include "common/port_range.h"

namespace nezha::flare {

using net::Address;

struct UdpCounters {
  // Received batches are counted by their datagrams: 1, 2 and 3, 4 to 7, ..., 128 and more.
  static constexpr size_t kSizes = 8;

  uint64_t received = 0;  // datagrams
  uint64_t received_bytes = 0;
  uint64_t sent = 0;
  uint64_t sent_bytes = 0;
  uint64_t not_sent = 0;  // datagrams dropped for want of room or of a route
  std::array<uint64_t, kSizes> batches{};

  UdpCounters& operator+=(const UdpCounters& other);
};

// The class is not thread-safe. Its methods never block: datagrams that the kernel has no room for
// are dropped and counted, as a network drops them.
class UdpPort {
 public:
  // Opens a port that is bound to `address`, for datagrams of at most `datagram` bytes.
  static absl::StatusOr<UdpPort> open(const Address& address, size_t datagram);
  // Opens such a port that is also bound to the interface, at one of `ports`, whatever port
  // `address` has.
  static absl::StatusOr<UdpPort> open_on(const std::string& interface, const Address& address,
                                         const PortRange& ports, size_t datagram);
  // Joins the multicast group on the interface and receives what is sent to it. Other sockets on
  // this host may be members, too, and each receives all.
  static absl::StatusOr<UdpPort> join(const Address& group, const std::string& interface,
                                      size_t datagram);
  // Opens `count` ports, 1 to 256, all bound to `address`, each for a thread of its own. The kernel
  // gives a datagram to port b mod `count`, where b is its byte at `place`, and a train to the port
  // of its first datagram. Datagrams that come before this returns may go to other ports. Returns
  // kUnimplemented if the kernel does not do that.
  static absl::StatusOr<std::vector<UdpPort>> open_many(const Address& address, size_t datagram,
                                                        size_t count, size_t place);

  int fd() const { return socket_.fd(); }
  int family() const { return family_; }  // the family of the addresses that it reaches

  // Has multicast go by the interface of the port's address, or by routes if no single interface
  // has that address.
  absl::Status reach_groups() const;

  // Calls `handle` with each datagram of a batch and its sender, and returns how many there were,
  // or 0 if there is nothing to receive. Leaves out datagrams longer than the port's limit, but
  // counts them.
  size_t receive(absl::FunctionRef<void(absl::Span<const std::byte>, const Address&)> handle);

  // Returns the memory for the next datagram. Callers write the datagram there, and then call
  // send() with its size.
  std::byte* buffer();
  // Queues that datagram for each of the receivers.
  void send(size_t size, absl::Span<const Address> to);
  // Sends what is queued.
  void flush();

  const UdpCounters& counters() const { return counters_; }

 private:
  // The batches are large enough to hide the cost of a system call, and small enough to stay in the
  // cache.
  static constexpr size_t kBatch = 64;           // datagrams to send
  static constexpr size_t kTrains = 16;          // trains to receive
  static constexpr size_t kMaxTrain = 65535;     // bytes
  static constexpr size_t kTrainToSend = 32000;  // bytes; longer ones fill queues in one go

  // The datagrams for one receiver, in order. A message is one or several of them.
  struct Receiver {
    Address address;
    std::vector<iovec> datagrams;
  };
  struct Message {
    Receiver* to;
    size_t first;  // the first of the receiver's datagrams
    size_t count;
  };
  struct alignas(cmsghdr) Control {
    std::byte bytes[CMSG_SPACE(sizeof(int))];
  };

  UdpPort(net::Socket socket, int family, size_t datagram);

  size_t hand_out(size_t train,
                  absl::FunctionRef<void(absl::Span<const std::byte>, const Address&)> handle);
  Receiver& receiver_at(const Address& address);
  void couple(Receiver& receiver);
  void uncouple(size_t first);
  // Sends the messages from `first` on. Returns how many were sent, or an errno as a negative
  // number.
  int send_from(size_t first);
  void count_out(const Message& message, bool is_sent);

  net::Socket socket_;
  int family_;
  size_t datagram_;

  std::vector<std::byte> in_;  // kTrains trains
  std::vector<Address> senders_;
  std::vector<Control> in_controls_;
  std::vector<iovec> in_parts_;
  std::vector<mmsghdr> in_headers_;

  std::vector<std::byte> out_;  // kBatch datagrams
  size_t queued_ = 0;           // datagrams of out_ that are queued
  bool couples_ = true;         // the kernel and the device take trains to send
  std::vector<std::unique_ptr<Receiver>> receivers_;
  size_t receivers_used_ = 0;
  std::vector<Message> messages_;
  std::vector<Control> out_controls_;
  std::vector<mmsghdr> out_headers_;

  UdpCounters counters_;
};

// Returns the MTU of the route to an address. An error names the address.
absl::StatusOr<size_t> path_mtu(const Address& to, const std::string& interface = "");

}  // namespace nezha::flare
