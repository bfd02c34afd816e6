// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

namespace nezha::scenarios {

// How many TCP connections this process has.
size_t connections();

}  // namespace nezha::scenarios
