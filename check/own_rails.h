// SPDX-License-Identifier: Apache-2.0
// This rank's rails: what the command line or auto makes of this host's interfaces.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "check/measurement.h"
#include "common/clock.h"
#include "context/rails.h"

namespace nezha::check {

// A rail of this rank, and its address to listen at and to connect from.
struct OwnRail {
  RailEnd end;
  std::string uri;
  net::Address address;
};

// The rails that a list stands for. `found` says whether auto has chosen them. `skipped` are the
// rails of switches. The error of wanted_rails() says which rail is malformed.
struct WantedRail {
  std::string uri;
  RailWay way;
};
struct WantedRails {
  std::vector<WantedRail> rails;
  bool found = false;
  std::vector<std::string> skipped;
};
absl::StatusOr<WantedRails> wanted_rails(const std::vector<std::string>& list);

// Returns the rails as the kernel describes them; an end that cannot be used has an error. Waits
// until the deadline for addresses that are being checked for duplicates.
absl::StatusOr<std::vector<OwnRail>> own_rails(const WantedRails& wanted, Nanos deadline);

// Returns this host's name, and what identifies the host: its name, its kernel and its network
// namespace.
RankFacts describe_host();

}  // namespace nezha::check
