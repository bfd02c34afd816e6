// SPDX-License-Identifier: Apache-2.0
// A program calls this as the first thing that it does. A library leaves a program's descriptors
// alone.
#pragma once

#include <fcntl.h>

namespace nezha {

// Opens standard descriptors that are closed, so that no file or socket gets their numbers. They
// are opened the wrong way round: reading standard input or writing standard output still fails.
inline void occupy_standard_descriptors() {
  for (int fd = 0; fd <= 2; ++fd) {
    // The lowest free number is the one that is opened.
    if (fcntl(fd, F_GETFD) < 0) (void)open("/dev/null", fd == 0 ? O_WRONLY : O_RDONLY);
  }
}

}  // namespace nezha
