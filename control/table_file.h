// SPDX-License-Identifier: Apache-2.0
// Data length tables as text files, so that a run starts from what an earlier one has learned.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "control/data_length_table.h"

namespace nezha {

// Classes that have had no window are left out.
std::string format_table(const DataLengthTable& table);
// The inverse. Text of another form is an error that names the line, and so is a number that no
// table of a context has; `name` is what the error calls the text.
absl::StatusOr<DataLengthTable> parse_table(absl::string_view text, absl::string_view name);

// Whoever reads the file while it is written, or after a crash, sees the old one or the new one.
absl::Status save_table(const DataLengthTable& table, const std::string& path);
// At most 1 MiB. NotFound where there is no such file.
absl::StatusOr<DataLengthTable> load_table(const std::string& path);

}  // namespace nezha
