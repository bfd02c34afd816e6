// SPDX-License-Identifier: Apache-2.0
// The table of nezha-check: a line for each rail, and one for each pair of ranks that is at fault.
#pragma once

#include <string>
#include <vector>

#include "check/diagnosis.h"
#include "check/measurement.h"

namespace nezha::check {

std::string table(const Evidence& evidence, const std::vector<Finding>& findings);

}  // namespace nezha::check
