// SPDX-License-Identifier: Apache-2.0
// What the two ends of an RDMA connection tell each other before they have it. The greeting follows
// the Hello, and the Welcome, of the handshake over TCP. Then each end connects its queue pair, and
// sends a byte by the same TCP connection:
// - the connecting end sends it when its queue pair is ready;
// - the accepting end sends it once both are ready and its link is up;
// - the connecting end sends it again when its link is up, too, and messages may come.
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
  bool is_iwarp = false;       // packets go by iWARP over Ethernet, not by RoCE
  uint8_t mtu = 0;             // ibv_mtu: of the port
  uint8_t reads = 0;           // RDMA READs of the peer that this end answers at a time
  uint16_t slots = 0;          // messages that the peer may send before it hears of freed slots
  uint32_t slot_size = 0;      // bytes of the largest of them
  // Only of an iWARP device, whose address is `gid`.
  uint16_t port = 0;   // where this end accepts the connection, if the peer makes it
  uint64_t token = 0;  // the peer shows it when it connects; not 0
};

constexpr size_t kGreetingSize = 64;

std::string encode(const Greeting& greeting);
// An error says what is wrong with what the peer sent.
absl::StatusOr<Greeting> decode_greeting(absl::string_view bytes);

// Sends the byte. Returns an error if the TCP connection takes nothing.
absl::Status say_ready(int fd);
// Returns OK if `byte`, which was read from the TCP connection, is that byte and it was due.
absl::Status check_ready(char byte, bool is_due);

// Returns an error, which both ends find, if their devices are on networks of different kinds.
// `device`: the name of this end's.
absl::Status check_networks(const Greeting& own, const Greeting& peers, absl::string_view device);

}  // namespace nezha::rdma
