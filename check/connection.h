// SPDX-License-Identifier: Apache-2.0
// Connects to a peer's nezha-check on one rail, or says why that fails.
#pragma once

#include <optional>
#include <string>

#include "check/greeting.h"
#include "check/measurement.h"
#include "check/stream.h"
#include "common/clock.h"
#include "common/net/socket.h"

namespace nezha::check {

// A target names this rank's end of a rail and the peer's.
struct Target {
  UniqueId token;
  int rank = 0;  // this one
  int peer = 0;
  int peer_rail = 0;           // the place among the peer's rails
  std::string interface;       // this rank's
  net::Address from;           // the interface's address, without a port
  net::Address to;             // where the peer listens
  std::string peer_interface;  // where the connection ought to arrive
};

struct Attempt {
  Outcome outcome = Outcome::kFailed;
  std::string detail;            // as in Reach; never empty without a stream
  std::optional<Stream> stream;  // set for outcomes kConnected and kWrongInterface
};

// The largest segment that a connection puts into a packet, bytes. With 0 the kernel chooses.
using MaxSegment = int;

// Connects through this rank's interface, asks for the service, and waits for the peer's welcome.
Attempt connect_to(const Target& target, Service service, MaxSegment segment, Nanos deadline);

}  // namespace nezha::check
