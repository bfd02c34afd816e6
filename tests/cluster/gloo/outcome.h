// SPDX-License-Identifier: Apache-2.0
// The outcome of a call, in words that are the same for every device.
#pragma once

#include <exception>
#include <stdexcept>
#include <string>
#include <type_traits>

namespace nezha::gloo_cases {

// A wrong result.
struct Wrong : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// The type of the exception, and the part of its text that programs look for.
std::string name_of(const std::exception& error);

// "ok", "true" or "false" if the call returns a bool, or the exception. A Wrong is rethrown.
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

// As outcome_of(), but without the text: each device describes the effects of a timeout elsewhere
// in its own words.
template <typename F>
std::string type_of(const F& call) {
  const std::string outcome = outcome_of(call);
  return outcome.substr(0, outcome.find(':'));
}

}  // namespace nezha::gloo_cases
