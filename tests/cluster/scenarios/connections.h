// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

namespace nezha::scenarios {

// The number of TCP connections of this process.
size_t connections();

}  // namespace nezha::scenarios
