// rails = {"auto"}: this host's network interfaces, and those of them that become rails.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "control/nic_selector.h"

namespace nezha {

// What becomes of each of this host's interfaces, in a process that may run where the calling
// thread may.
absl::StatusOr<std::vector<Choice>> probe_and_select();

// The device that the choice stands for; empty if the interface is left.
std::string uri_of(const Choice& choice);

struct AutoRails {
  std::vector<std::string> uris;
  ChosenInterfaces interfaces;  // by rail name
};

// Those that are taken; at least one, or the error says why each was left. Logs all, and why.
absl::StatusOr<AutoRails> find_rails();

}  // namespace nezha
