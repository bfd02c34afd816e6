// SPDX-License-Identifier: Apache-2.0
// Connections that could not be made, or that arrived where they should not.
#pragma once

#include <vector>

#include "check/diagnosis.h"
#include "check/ways.h"

namespace nezha::check {

std::vector<Finding> diagnose_connects(const Evidence& evidence);

}  // namespace nezha::check
