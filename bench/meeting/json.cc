// SPDX-License-Identifier: Apache-2.0
#include "bench/meeting/json.h"

#include "absl/strings/str_format.h"

namespace nezha::bench {

std::string quoted(const std::string& text) {
  std::string result = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') result += '\\';
    const auto code = static_cast<unsigned char>(c);
    result += code < 0x20 ? absl::StrFormat("\\u%04x", code) : std::string(1, c);
  }
  return result + '"';
}

}  // namespace nezha::bench
