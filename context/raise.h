// SPDX-License-Identifier: Apache-2.0
// Turns the statuses used inside into the exceptions of the public API.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace nezha {

// Returns a text such as "nezha: rank 1 of 4: text".
std::string prefixed(absl::string_view rank_of, absl::string_view text);

// The error text for a child of fork() that uses an object of its parent.
constexpr absl::string_view kInherited =
    "this process is a child that fork() made later, so it cannot use its parent's connections; it "
    "may make a context of its own";

// Throws the exception that corresponds to the status.
[[noreturn]] void raise(absl::string_view rank_of, const absl::Status& why);

}  // namespace nezha
