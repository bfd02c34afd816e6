// SPDX-License-Identifier: Apache-2.0
// Diagnoses connections that could not be made, and those that arrived at a wrong interface.
#pragma once

#include <vector>

#include "check/diagnosis.h"
#include "check/ways.h"

namespace nezha::check {

std::vector<Finding> diagnose_connects(const Evidence& evidence);

}  // namespace nezha::check
