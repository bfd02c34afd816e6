// SPDX-License-Identifier: Apache-2.0
#include "transport/rdma/greeting.h"

#include <sys/socket.h>

#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "common/fields.h"

namespace nezha::rdma {
namespace {

constexpr uint32_t kMagic = 0x414d4452;  // "RDMA"
constexpr uint16_t kVersion = 2;         // in version 1 nobody said that a queue pair was ready
constexpr char kReady = 1;
constexpr size_t kUsed = 4 + 2 + 4 + 4 + 16 + 2 + 1 + 1 + 1 + 2 + 4 + 2 + 8;
static_assert(kUsed <= kGreetingSize);

// The network that carries the packets.
enum class Carrier : uint8_t { kRoce = 0, kInfiniband = 1, kIwarp = 2 };

Carrier carrier_of(const Greeting& greeting) {
  if (greeting.is_iwarp) return Carrier::kIwarp;
  return greeting.is_infiniband ? Carrier::kInfiniband : Carrier::kRoce;
}

const char* name_of(Carrier carrier) {
  if (carrier == Carrier::kInfiniband) return "InfiniBand";
  return carrier == Carrier::kIwarp ? "Ethernet, by iWARP" : "Ethernet, by RoCE";
}

}  // namespace

std::string encode(const Greeting& greeting) {
  std::string bytes(kGreetingSize, '\0');
  FieldWriter(reinterpret_cast<std::byte*>(bytes.data()))
      .put(kMagic)
      .put(kVersion)
      .put(greeting.pair)
      .put(greeting.first_packet)
      .put(absl::string_view(reinterpret_cast<const char*>(greeting.gid.raw), 16), 16)
      .put(greeting.lid)
      .put(static_cast<uint8_t>(carrier_of(greeting)))
      .put(greeting.mtu)
      .put(greeting.reads)
      .put(greeting.slots)
      .put(greeting.slot_size)
      .put(greeting.port)
      .put(greeting.token);
  return bytes;
}

absl::StatusOr<Greeting> decode_greeting(absl::string_view bytes) {
  if (bytes.size() != kGreetingSize)
    return absl::InvalidArgumentError("the peer sent a greeting of a wrong size");
  FieldReader reader(reinterpret_cast<const std::byte*>(bytes.data()));
  if (reader.get<uint32_t>() != kMagic) {
    return absl::InvalidArgumentError("the other end does not speak nezha's protocol over RDMA");
  }
  if (const auto version = reader.get<uint16_t>(); version != kVersion) {
    return absl::FailedPreconditionError(
        absl::StrCat("the peer speaks version ", version,
                     " of the protocol over RDMA, and this process speaks version ", kVersion,
                     "; install the same version of nezha on all hosts"));
  }
  Greeting greeting;
  greeting.pair = reader.get<uint32_t>();
  greeting.first_packet = reader.get<uint32_t>();
  const absl::string_view gid = reader.get_text(16);
  std::copy(gid.begin(), gid.end(), greeting.gid.raw);
  greeting.lid = reader.get<uint16_t>();
  const auto carrier = static_cast<Carrier>(reader.get<uint8_t>());
  greeting.is_infiniband = carrier == Carrier::kInfiniband;
  greeting.is_iwarp = carrier == Carrier::kIwarp;
  greeting.mtu = reader.get<uint8_t>();
  greeting.reads = reader.get<uint8_t>();
  greeting.slots = reader.get<uint16_t>();
  greeting.slot_size = reader.get<uint32_t>();
  greeting.port = reader.get<uint16_t>();
  greeting.token = reader.get<uint64_t>();
  const bool is_sound = greeting.pair < 1u << 24 && greeting.first_packet < 1u << 24 &&
                        greeting.mtu >= IBV_MTU_256 && greeting.mtu <= IBV_MTU_4096 &&
                        (!greeting.is_iwarp || (greeting.port != 0 && greeting.token != 0));
  if (!is_sound)
    return absl::InvalidArgumentError("the peer sent a greeting that no correct peer sends");
  return greeting;
}

absl::Status say_ready(int fd) {
  if (::send(fd, &kReady, 1, MSG_NOSIGNAL) == 1) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat("the handshake: ", strerror(errno)));
}

absl::Status check_ready(char byte, bool is_due) {
  if (byte == kReady && is_due) return absl::OkStatus();
  return absl::InvalidArgumentError("the peer said in the handshake what no correct peer says");
}

absl::Status check_networks(const Greeting& own, const Greeting& peers, absl::string_view device) {
  const Carrier here = carrier_of(own);
  const Carrier there = carrier_of(peers);
  if (here == there) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(device, " is on ", name_of(here),
                                                    ", and the peer's device on ", name_of(there),
                                                    ": name devices of one network for the rail"));
}

}  // namespace nezha::rdma
