// SPDX-License-Identifier: Apache-2.0
#include "common/descriptor.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>

namespace nezha {
namespace {

void close_and_keep_errno(int fd) {
  const int error = errno;
  close(fd);
  errno = error;
}

}  // namespace

int above_standard(int fd) {
  if (fd < 0 || fd > STDERR_FILENO) return fd;
  const int copy = fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
  close_and_keep_errno(fd);
  return copy;
}

std::optional<std::string> read_file(const std::string& path, size_t most) {
  const int file = above_standard(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (file < 0) return std::nullopt;
  std::optional<std::string> text = std::string();
  std::array<char, 4096> bytes;
  while (text->size() < most) {
    const ssize_t got = read(file, bytes.data(), std::min(bytes.size(), most - text->size()));
    if (got == 0) break;
    if (got > 0) {
      text->append(bytes.data(), static_cast<size_t>(got));
    } else if (errno != EINTR) {
      text.reset();
      break;
    }
  }
  close_and_keep_errno(file);
  return text;
}

}  // namespace nezha
