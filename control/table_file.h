// SPDX-License-Identifier: Apache-2.0
// Data length tables as text files, so that a run starts from what an earlier run has learned.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "control/data_length_table.h"

namespace nezha {

// Classes that have had no window are left out.
std::string format_table(const DataLengthTable& table);
// Parses a text that format_table() has made. Returns an error that names the line if the text has
// another form or a number that no context's table can have. `name` is what the error calls the
// text.
absl::StatusOr<DataLengthTable> parse_table(absl::string_view text, absl::string_view name);

// Replaces the file atomically: a reader sees the old file or the new one, even after a crash.
absl::Status save_table(const DataLengthTable& table, const std::string& path);
// Reads a file of at most 1 MiB. Returns NotFound if there is no such file.
absl::StatusOr<DataLengthTable> load_table(const std::string& path);

}  // namespace nezha
