// SPDX-License-Identifier: Apache-2.0
// What became of a call, in words that are the same over every device.
#pragma once

#include <exception>
#include <stdexcept>
#include <string>
#include <type_traits>

namespace nezha::gloo_cases {

// A result is not what it ought to be.
struct Wrong : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// The type of what was thrown, and the part of its text that programs look for.
std::string name_of(const std::exception& error);

// "ok", "true" or "false" for what returns a bool, or what was thrown. A Wrong goes through.
template <typename F>
std::string outcome_of(const F& call) {
  try {
    if constexpr (std::is_same_v<decltype(call()), bool>) {
      return call() ? "true" : "false";
    } else {
      call();
      return "ok";
    }
  } catch (const Wrong&) {
    throw;
  } catch (const std::exception& error) {
    return name_of(error);
  }
}

// Likewise, without the text: what a timeout elsewhere leads to each device tells in its own words.
template <typename F>
std::string type_of(const F& call) {
  const std::string outcome = outcome_of(call);
  return outcome.substr(0, outcome.find(':'));
}

}  // namespace nezha::gloo_cases
