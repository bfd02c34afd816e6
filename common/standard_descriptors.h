// SPDX-License-Identifier: Apache-2.0
// A program calls this function before it does anything else. A library leaves a program's
// descriptors alone.
#pragma once

#include <fcntl.h>

namespace nezha {

// Opens standard descriptors that are closed, so that no file or socket gets their numbers. They
// are opened in the wrong direction, so that reading standard input or writing standard output
// still fails.
inline void occupy_standard_descriptors() {
  for (int fd = 0; fd <= 2; ++fd) {
    // open() returns the lowest free number.
    if (fcntl(fd, F_GETFD) < 0) (void)open("/dev/null", fd == 0 ? O_WRONLY : O_RDONLY);
  }
}

}  // namespace nezha
