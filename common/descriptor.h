// SPDX-License-Identifier: Apache-2.0
// File descriptors of the library's own. None of them is a standard one (0 to 2): a program may run
// with those closed, and what it or the log then wrote to one of them would go into a connection.
#pragma once

#include <cstddef>
#include <limits>
#include <optional>
#include <string>

namespace nezha {

// Takes a descriptor as the kernel gave it, or an error (-1). Gives it back, or, in place of a
// standard one, which this closes, a copy above those. -1, with errno set, if there is none.
int above_standard(int fd);

// The first `most` bytes of a file. None, with errno set, if it cannot be read.
std::optional<std::string> read_file(const std::string& path,
                                     size_t most = std::numeric_limits<size_t>::max());

}  // namespace nezha
