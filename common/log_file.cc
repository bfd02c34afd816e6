// SPDX-License-Identifier: Apache-2.0
#include "common/log_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "common/descriptor.h"
#include "common/fork.h"
#include "common/host.h"

namespace nezha {
namespace {

constexpr absl::string_view kKnown = "rhp%";

std::string value_of(char letter, int rank) {
  if (letter == 'r') return rank < 0 ? "none" : absl::StrCat(rank);
  if (letter == 'h') return host_name();
  if (letter == 'p') return absl::StrCat(getpid());
  return "%";
}

bool has_meaning(absl::string_view pattern, size_t percent) {
  return percent + 1 < pattern.size() &&
         kKnown.find(pattern[percent + 1]) != absl::string_view::npos;
}

}  // namespace

bool LogFileName::is_valid(absl::string_view pattern) {
  for (size_t i = 0; i < pattern.size(); ++i) {
    if (pattern[i] != '%') continue;
    if (!has_meaning(pattern, i)) return false;
    ++i;
  }
  return !pattern.empty();
}

std::string LogFileName::expand(absl::string_view pattern, int rank) {
  std::string path;
  for (size_t i = 0; i < pattern.size(); ++i) {
    if (pattern[i] == '%' && has_meaning(pattern, i)) {
      path += value_of(pattern[++i], rank);
    } else {
      path += pattern[i];
    }
  }
  return path;
}

LogFile::~LogFile() {
  if (is_open()) close_ours(fd_);
}

absl::Status LogFile::open(const std::string& path) {
  path_ = path;
  // Opening a pipe that nobody reads fails at once. Later writes wait for the reader.
  const int flags = O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOCTTY | O_NONBLOCK;
  fd_ = above_standard(::open(path.c_str(), flags, 0666));
  if (!is_open()) return failure("opened", errno);
  fcntl(fd_, F_SETFL, O_APPEND);
  close_in_children(fd_);
  return absl::OkStatus();
}

absl::Status LogFile::append(absl::string_view line) {
  while (!line.empty()) {
    const ssize_t put = write(fd_, line.data(), line.size());
    if (put > 0) {
      line.remove_prefix(static_cast<size_t>(put));
    } else if (put == 0 || errno != EINTR) {
      const int error = put == 0 ? ENOSPC : errno;
      close_ours(fd_);
      fd_ = -1;
      return failure("written", error);
    }
  }
  return absl::OkStatus();
}

absl::Status LogFile::failure(absl::string_view what, int error) {
  return absl::UnavailableError(absl::StrCat(
      "the log file ", path_, " cannot be ", what, ": ", strerror(error),
      "; the log goes to standard error; name a file in NEZHA_LOG_FILE that may be written to"));
}

}  // namespace nezha
