// SPDX-License-Identifier: Apache-2.0
// File descriptors of the library's own. None of them is a standard one (0 to 2): a program may run
// with those closed, and anything that the program or the log then wrote to one of them would go
// into a connection.
#pragma once

#include <cstddef>
#include <limits>
#include <optional>
#include <string>

namespace nezha {

// Takes a descriptor as the kernel returned it, or an error (-1). Returns the descriptor, unless it
// is a standard one: then this closes it and returns a copy above the standard ones. Returns -1,
// with errno set, if there is no descriptor.
int above_standard(int fd);

// Returns the first `most` bytes of a file. Returns none, with errno set, if the file cannot be
// read.
std::optional<std::string> read_file(const std::string& path,
                                     size_t most = std::numeric_limits<size_t>::max());

}  // namespace nezha
