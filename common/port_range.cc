#include "common/port_range.h"

#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace nezha {

std::string PortRange::str() const { return absl::StrCat(first, "-", last); }

absl::StatusOr<PortRange> PortRange::parse(absl::string_view text) {
  if (text.empty()) return PortRange();
  const std::pair<absl::string_view, absl::string_view> ends =
      absl::StrSplit(text, absl::MaxSplits('-', 1));
  uint32_t first = 0;
  uint32_t last = 0;
  if (absl::SimpleAtoi(ends.first, &first) && absl::SimpleAtoi(ends.second, &last) && first > 0 &&
      first <= last && last <= 65535) {
    return PortRange{static_cast<uint16_t>(first), static_cast<uint16_t>(last)};
  }
  return absl::InvalidArgumentError(absl::StrCat("'", text, "' is not ", kMayBe));
}

}  // namespace nezha
