// SPDX-License-Identifier: Apache-2.0
#include "common/shortage.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>

#include "absl/strings/str_cat.h"

namespace nezha {
namespace {

absl::string_view advice_on(int error) {
  switch (error) {
    case EMFILE:
      return "; raise the limit of open files (ulimit -n), or close some";
    case ENFILE:
      return "; all processes of the machine have too many open files: raise fs.file-max";
    case ENOMEM:
    case ENOBUFS:
      return "; the machine, or the container, has no memory left";
    default:
      return "";
  }
}

}  // namespace

absl::Status system_error(int error, absl::string_view what) {
  absl::Status status = absl::ErrnoToStatus(error, what);
  const absl::string_view advice = advice_on(error);
  if (advice.empty()) return status;
  return absl::ResourceExhaustedError(absl::StrCat(status.message(), advice));
}

std::string advice_on_descriptors() {
  const int fd = eventfd(0, EFD_CLOEXEC);
  if (fd < 0) return std::string(advice_on(errno));
  close(fd);
  return "";
}

absl::Status no_thread(absl::string_view why) {
  return absl::ResourceExhaustedError(
      absl::StrCat("starting a thread: ", why,
                   "; raise the limit of processes and threads (ulimit -u, or pids.max of the "
                   "container)"));
}

}  // namespace nezha
