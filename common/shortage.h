// SPDX-License-Identifier: Apache-2.0
// A process may run out of descriptors, threads or memory. These errors then say which limit to
// raise.
#pragma once

#include <string>
#include <system_error>
#include <thread>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace nezha {

// Does what absl::ErrnoToStatus() does, but if the process or the machine has run out of something,
// the status is ResourceExhausted and says which limit to raise.
absl::Status system_error(int error, absl::string_view what);

// Returns text to add to the error of a library that does not say why it cannot open a file:
// "; raise ..." if this process can open no more descriptors now, otherwise nothing.
std::string advice_on_descriptors();

absl::Status no_thread(absl::string_view why);

// Starts a thread that runs `body`; ResourceExhausted if there can be no more threads.
template <typename Body>
absl::StatusOr<std::thread> start_thread(Body&& body) {
  try {
    return std::thread(std::forward<Body>(body));
  } catch (const std::system_error& error) {
    return no_thread(error.code().message());
  }
}

}  // namespace nezha
