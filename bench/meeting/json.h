// SPDX-License-Identifier: Apache-2.0
// JSON, as the programs print it.
#pragma once

#include <string>

namespace nezha::bench {

// Returns the text as a string of JSON.
std::string quoted(const std::string& text);

}  // namespace nezha::bench
