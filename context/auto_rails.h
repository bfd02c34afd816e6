// SPDX-License-Identifier: Apache-2.0
// rails = {"auto", "!PATTERN", ...}: this host's network interfaces, and those that become rails.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/log.h"
#include "rails/nic_selector.h"

namespace nezha {

// What becomes of each of this host's interfaces, in a process that may run where the calling
// thread may. Those whose names match one of the patterns are left.
absl::StatusOr<std::vector<Choice>> probe_and_select(const std::vector<std::string>& unwanted = {});

// The device that the choice stands for; empty if the interface is left.
std::string uri_of(const Choice& choice);

struct AutoRails {
  std::vector<std::string> uris;
  ChosenInterfaces interfaces;  // by rail name
};

// Returns whether the list leaves it to nezha to find the rails.
bool is_auto(const std::vector<std::string>& rails);

// Finds the rails that `rails`, a list with "auto", stands for: at least one, or the error says why
// each interface was left. Tells `log` what is taken and left, and why. A list that has anything
// else than "auto" and patterns is an error.
absl::StatusOr<AutoRails> find_rails(const std::vector<std::string>& rails, spdlog::logger& log);

}  // namespace nezha
