// SPDX-License-Identifier: Apache-2.0
// Who this process is, for texts that other ranks or people read elsewhere.
#pragma once

#include <string>

namespace nezha {

std::string host_name();

// "pid 4242 on host node7". In a text that goes to other ranks "this process" would be theirs.
std::string process_name();

}  // namespace nezha
