// SPDX-License-Identifier: Apache-2.0
// The first bytes of a connection between two ranks' nezha-checks. Both have the run's token, which
// came through the rendezvous store, so they ignore what other programs send. The rank that
// connects sends the token in its hello to whoever answers at the address. Another program there
// learns the token, and can then pass for a rank until the run ends.
//
//   hello    magic:8 token:16 from:4 to:4 rail:4 service:1        (37 bytes, little-endian)
//   welcome  magic:8 token:16 rank:4 interface:16                 (44 bytes)
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "common/unique_id.h"

namespace nezha::check {

// The service that the connecting rank wants of the other.
enum class Service : uint8_t {
  kGreet,      // nothing more
  kTakeFrame,  // read one frame and confirm it
  kGiveFrame,  // send one frame
  kEcho,       // send back what comes
  kTake,       // read what comes
  kGive,       // send as much as the connection carries
};
constexpr int kServices = 6;

struct Hello {
  UniqueId token;
  uint32_t from = 0;  // ranks
  uint32_t to = 0;
  uint32_t rail = 0;  // the place among the rails of `to`
  Service service = Service::kGreet;
};
using HelloBytes = std::array<std::byte, 37>;

struct Welcome {
  UniqueId token;
  uint32_t rank = 0;      // who answers
  std::string interface;  // where the connection arrived; at most 15 characters
};
using WelcomeBytes = std::array<std::byte, 44>;

HelloBytes encode(const Hello& hello);
WelcomeBytes encode(const Welcome& welcome);
// These return nothing if encode() makes no such bytes.
std::optional<Hello> decode_hello(const HelloBytes& bytes);
std::optional<Welcome> decode_welcome(const WelcomeBytes& bytes);

}  // namespace nezha::check
