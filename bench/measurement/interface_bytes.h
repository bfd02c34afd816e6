// SPDX-License-Identifier: Apache-2.0
// Finds out how many bytes network interfaces have sent, for libraries that do not count their own.
#pragma once

#include <string>
#include <vector>

#include "bench/measurement/runner.h"

namespace nezha::bench {

// Returns the bytes that have left through each interface of this process's network namespace,
// headers included, as the kernel counts them. Throws std::runtime_error if there is no such
// interface.
std::vector<RailBytes> interface_bytes_sent(const std::vector<std::string>& interfaces);

}  // namespace nezha::bench
