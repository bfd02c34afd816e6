// SPDX-License-Identifier: Apache-2.0
// A range of ports, such as firewalls let through.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"

namespace nezha {

struct PortRange {
  static constexpr const char* kMayBe = "a range of ports such as 20000-20100, from 1 to 65535";

  uint16_t first = 0;
  uint16_t last = 0;

  bool is_any() const { return first == 0; }  // the kernel chooses one
  std::string str() const { return absl::StrCat(first, "-", last); }
  // Parses the format of str(), with first <= last; an empty text means any port. Returns nothing
  // if the text is no range.
  static std::optional<PortRange> parse(absl::string_view text) {
    if (text.empty()) return PortRange();
    const std::pair<absl::string_view, absl::string_view> ends =
        absl::StrSplit(text, absl::MaxSplits('-', 1));
    uint32_t first = 0;
    uint32_t last = 0;
    if (absl::SimpleAtoi(ends.first, &first) && absl::SimpleAtoi(ends.second, &last) && first > 0 &&
        first <= last && last <= 65535) {
      return PortRange{static_cast<uint16_t>(first), static_cast<uint16_t>(last)};
    }
    return std::nullopt;
  }
};

}  // namespace nezha
