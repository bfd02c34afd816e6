// SPDX-License-Identifier: Apache-2.0
// What the two ends of a connection over RDMA tell each other before they have one. It follows the
// Hello, and the Welcome, of the handshake over TCP. Each end connects its queue pair then, and by
// the same TCP connection
// - the connecting end says by a byte that its queue pair is ready;
// - the accepting end, once both are, that the link is up there;
// - the connecting end that it is up here, too, and that messages may come.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "transport/rdma/verbs.h"

namespace nezha::rdma {

struct Greeting {
  uint32_t pair = 0;          // the number of the queue pair
  uint32_t first_packet = 0;  // its first packet's number, 24 bits
  ibv_gid gid{};
  uint16_t lid = 0;
  bool is_infiniband = false;  // else packets go over Ethernet
  bool is_iwarp = false;       // and not by RoCE
  uint8_t mtu = 0;             // ibv_mtu: of the port
  uint8_t reads = 0;           // RDMA READs of the peer that this end answers at a time
  uint16_t slots = 0;          // messages that the peer may send before it hears of freed slots
  uint32_t slot_size = 0;      // bytes of the largest of them
  // Of an iWARP device, whose address `gid` is.
  uint16_t port = 0;   // where its end takes the connection, if the peer makes it
  uint64_t token = 0;  // by which it knows the peer; not 0
};

constexpr size_t kGreetingSize = 64;

std::string encode(const Greeting& greeting);
// An error says what is wrong with what the peer sent.
absl::StatusOr<Greeting> decode_greeting(absl::string_view bytes);

// Says the byte. An error: the TCP connection takes nothing.
absl::Status say_ready(int fd);
// What was read by the TCP connection is that byte, and it was due.
absl::Status check_ready(char byte, bool is_due);

// An error, at either end, if the two ends' devices are on networks of different kinds. `device`:
// this end's.
absl::Status check_networks(const Greeting& own, const Greeting& peers, absl::string_view device);

}  // namespace nezha::rdma
