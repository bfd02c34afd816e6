// SPDX-License-Identifier: Apache-2.0
// Diagnoses the measurements between pairs of ranks: packets that are too large for the path, links
// that failed meanwhile, and rates that stand out.
#pragma once

#include <vector>

#include "check/diagnosis.h"
#include "check/ways.h"

namespace nezha::check {

std::vector<Finding> diagnose_paths(const Evidence& evidence);

}  // namespace nezha::check
