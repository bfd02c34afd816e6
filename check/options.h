// SPDX-License-Identifier: Apache-2.0
// The command line of nezha-check.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "bench/meeting/rendezvous.h"

namespace nezha::check {

struct Options : bench::Rendezvous {
  std::vector<std::string> rails;  // rails as NEZHA_RAILS has them, at least one
  std::string ports;               // empty: any
  bool json = false;
};

// Reads the command line, and completes it from the environment. Makes the shared path, if one is
// given. Returns nothing if the user asked for the help or the version, which has then been
// printed. Throws UsageError.
std::optional<Options> parse_options(int argc, char** argv);

}  // namespace nezha::check
