// SPDX-License-Identifier: Apache-2.0
// rails = {"auto", "!PATTERN", ...}: which of this host's network interfaces become rails.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/log.h"
#include "rails/nic_selector.h"

namespace nezha {

// Decides for each of this host's interfaces whether it becomes a rail of a process that may run on
// the calling thread's cores. Interfaces whose names match a pattern in `unwanted` do not.
absl::StatusOr<std::vector<Choice>> probe_and_select(const std::vector<std::string>& unwanted = {});

// Returns the URI of the device for the choice; empty if the interface becomes no rail.
std::string uri_of(const Choice& choice);

struct AutoRails {
  std::vector<std::string> uris;
  ChosenInterfaces interfaces;  // keyed by rail name
};

// Returns whether the list asks nezha to find the rails.
bool is_auto(const std::vector<std::string>& rails);

// Finds the rails for `rails`, a list with "auto". If there are none, the error says why for each
// interface. Logs which interfaces are taken and left, and why. A list that has anything other than
// "auto" and patterns is an error.
absl::StatusOr<AutoRails> find_rails(const std::vector<std::string>& rails, spdlog::logger& log);

}  // namespace nezha
