// The switch as a process: a port, the sessions installed on it, and what is counted.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "flare_offload/switchd/session.h"
#include "flare_offload/udp/udp_port.h"

namespace nezha::flare {

// Not thread-safe.
class Server {
 public:
  // `memory`: bytes that all sessions' slots may take together.
  static absl::StatusOr<std::unique_ptr<Server>> listen(const Address& address, size_t memory);

  // kAlreadyExists if there is such a session, kResourceExhausted if the memory that is left is not
  // enough, and Session::install's errors. All name the session.
  absl::Status install(const SessionSpec& spec);
  // Nothing, if there is no such session.
  void remove(uint32_t session);
  size_t memory() const { return memory_; }  // as it was given

  int fd() const { return port_.fd(); }
  // Handles some of what has come: that many frames.
  size_t receive();

  // A line of JSON.
  std::string statistics() const;

 private:
  Server(UdpPort port, size_t memory)
      : port_(std::move(port)), memory_(memory), memory_left_(memory) {}

  void handle(absl::Span<const std::byte> datagram, const Address& from);

  UdpPort port_;
  const size_t memory_;
  size_t memory_left_;
  absl::flat_hash_map<uint32_t, std::unique_ptr<Session>> sessions_;
  uint64_t malformed_ = 0;
  uint64_t unknown_ = 0;  // of no session here
};

}  // namespace nezha::flare
