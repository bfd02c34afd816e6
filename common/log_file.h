// SPDX-License-Identifier: Apache-2.0
// The file that the log is written to in place of standard error.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace nezha {

// The name of a log file, as in NEZHA_LOG_FILE: %r is replaced by the rank, %h by the host, %p by
// the process's number, and %% by a percent sign.
class LogFileName {
 public:
  static constexpr absl::string_view kMayBe =
      "the path of a file, in which %r stands for the rank, %h for the host, %p for the process's "
      "number and %% for a percent sign";

  static bool is_valid(absl::string_view pattern);
  // Leaves a percent sign unchanged if the next letter has no meaning. `rank` is negative if the
  // process has none, which is written as "none".
  static std::string expand(absl::string_view pattern, int rank);
};

// A file that is open for appending, or none. The class is not thread-safe.
class LogFile {
 public:
  LogFile() = default;
  ~LogFile();
  LogFile(const LogFile&) = delete;
  LogFile& operator=(const LogFile&) = delete;

  bool is_open() const { return fd_ >= 0; }
  // Opens the file for appending, or creates it. An error says why that failed and what to do.
  absl::Status open(const std::string& path);
  // Appends a line with a single call if the kernel takes it as a whole, so that lines of processes
  // that write to the same file do not mix. Closes the file if the line cannot be written.
  absl::Status append(absl::string_view line);

 private:
  absl::Status failure(absl::string_view what, int error);

  std::string path_;
  int fd_ = -1;
};

}  // namespace nezha
