// SPDX-License-Identifier: Apache-2.0
// Says in words what is wrong: a pure function of what the ranks have and have measured.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "check/measurement.h"

namespace nezha::check {

struct Finding {
  std::string kind;  // for machines: "refused", "mtu", ...
  std::string rail;
  std::vector<int> ranks;                  // the ranks that the finding is about
  std::vector<std::pair<int, int>> pairs;  // pairs of them, where it is about the way between ranks
  std::string text;                        // whole sentences: what was seen, and what to do
};

// Returns the findings in the order in which they are best fixed: what an end lacks comes before
// what follows from it. There are none if all is well.
std::vector<Finding> diagnose(const Evidence& evidence);

}  // namespace nezha::check
