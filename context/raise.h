// From the statuses used inside to the exceptions of the public API.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace nezha {

// "nezha: rank 1 of 4: text"
std::string prefixed(absl::string_view rank_of, absl::string_view text);

// Throws what the status stands for.
[[noreturn]] void raise(absl::string_view rank_of, const absl::Status& why);

}  // namespace nezha
