// SPDX-License-Identifier: Apache-2.0
// One installed session: its slots, its keys, and where its frames go.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "flare_offload/core/slot_table.h"
#include "flare_offload/switchd/session_spec.h"
#include "flare_offload/udp/udp_port.h"

namespace nezha::flare {

struct SessionCounts {
  uint64_t received = 0;  // frames that named the session
  uint64_t received_bytes = 0;
  uint64_t sent = 0;  // frames, one for each receiver; a group is one
  uint64_t sent_bytes = 0;
  uint64_t outdated = 0;   // frames of other generations
  uint64_t strangers = 0;  // frames from no child's or parent's address
  uint64_t forged = 0;     // frames with a wrong tag
};

// The class is not thread-safe.
class Session final : private Outlet {
 public:
  // The port outlives this. An error says which child or parent cannot be reached or is of another
  // address family than the port, or that the payload does not fit the path.
  static absl::StatusOr<std::unique_ptr<Session>> install(const SessionSpec& spec, UdpPort* port);

  // Takes a datagram that names this session. `frame` is what decode() made of it.
  void receive(absl::Span<const std::byte> datagram, const Frame& frame, const Address& from);

  size_t memory() const { return SlotTable::memory_of(spec_.table); }  // bytes of its slots
  const SlotTableCounters& counters() const { return table_.counters(); }
  const SessionCounts& counts() const { return counts_; }

 private:
  Session(SessionSpec spec, UdpPort* port);

  void to_parent(const FrameHeader& header, absl::Span<const std::byte> payload) override;
  void to_child(int child, const FrameHeader& header, absl::Span<const std::byte> payload) override;
  void to_children(const FrameHeader& header, absl::Span<const std::byte> payload) override;
  // The header's session and generation are filled in.
  void send(FrameHeader header, absl::Span<const std::byte> payload, Authenticator& authenticator,
            absl::Span<const Address> to);

  const SessionSpec spec_;
  const std::vector<Address> results_to_;
  UdpPort* const port_;
  Authenticator below_;
  Authenticator above_;
  SlotTable table_;
  SessionCounts counts_;
};

}  // namespace nezha::flare
