// SPDX-License-Identifier: Apache-2.0
// The file that the log is written to in place of standard error.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace nezha {

// The name of a log file, as NEZHA_LOG_FILE has it: %r, %h and %p stand for the rank, the host and
// the process's number, and %% for a percent sign.
class LogFileName {
 public:
  static constexpr absl::string_view kMayBe =
      "the path of a file, in which %r stands for the rank, %h for the host, %p for the process's "
      "number and %% for a percent sign";

  static bool is_valid(absl::string_view pattern);
  // Leaves as it is what follows a percent sign and has no meaning. `rank`: negative if the process
  // is of none, which is called "none".
  static std::string expand(absl::string_view pattern, int rank);
};

// Not thread-safe.
class LogFile {
 public:
  LogFile() = default;
  ~LogFile();
  LogFile(const LogFile&) = delete;
  LogFile& operator=(const LogFile&) = delete;

  bool is_open() const { return fd_ >= 0; }
  // Opens the file for appending, or makes it. An error says why that failed and what to do.
  absl::Status open(const std::string& path);
  // Appends a line, by one call where the kernel takes it as a whole: so lines of processes that
  // write to one file are not mixed. Closes the file if the line cannot be written.
  absl::Status append(absl::string_view line);

 private:
  absl::Status failure(absl::string_view what, int error);

  std::string path_;
  int fd_ = -1;
};

}  // namespace nezha
