// SPDX-License-Identifier: Apache-2.0
#include "cluster/gloo/outcome.h"

#include <gloo/common/error.h>
#include <gloo/common/logging.h>

#include <regex>

namespace nezha::gloo_cases {

std::string name_of(const std::exception& error) {
  // Each device describes errors of a peer in its own words, but all describe the timeout of a wait
  // alike.
  static const std::regex timed_out(
      "Timed out waiting [0-9]+ms for (recv|send|collective) operation to complete");
  const std::string text = error.what();
  if (dynamic_cast<const Wrong*>(&error) != nullptr) return "wrong: " + text;
  std::smatch match;
  const std::string stable =
      std::regex_search(text, match, timed_out) ? ": " + match.str() : std::string();
  if (dynamic_cast<const gloo::IoException*>(&error) != nullptr) return "IoException" + stable;
  if (dynamic_cast<const gloo::InvalidOperationException*>(&error) != nullptr) {
    return "InvalidOperationException" + stable;
  }
  if (dynamic_cast<const gloo::Exception*>(&error) != nullptr) return "Exception" + stable;
  if (dynamic_cast<const gloo::EnforceNotMet*>(&error) != nullptr) return "EnforceNotMet" + stable;
  return "another exception: " + text;
}

}  // namespace nezha::gloo_cases
