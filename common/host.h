// SPDX-License-Identifier: Apache-2.0
// Names of this host and this process, for texts that other ranks or people elsewhere read.
#pragma once

#include <string>

namespace nezha {

std::string host_name();

// Returns a text such as "pid 4242 on host node7". A text that goes to other ranks cannot say "this
// process": the readers would take that for their own.
std::string process_name();

}  // namespace nezha
