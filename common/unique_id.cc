// SPDX-License-Identifier: Apache-2.0
#include "common/unique_id.h"

#include <random>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace nezha {

UniqueId UniqueId::random() {
  std::random_device device;  // the kernel's generator
  const auto word = [&] { return (uint64_t{device()} << 32) | device(); };
  return {word(), word()};
}

absl::StatusOr<UniqueId> UniqueId::parse(absl::string_view hex) {
  UniqueId id;
  if (hex.size() != 32 || hex.find_first_not_of("0123456789abcdef") != hex.npos ||
      !absl::SimpleHexAtoi(hex.substr(0, 16), &id.high) ||
      !absl::SimpleHexAtoi(hex.substr(16), &id.low)) {
    return absl::InvalidArgumentError(absl::StrCat("not an id of 32 hex digits: '", hex, "'"));
  }
  return id;
}

std::string UniqueId::str() const {
  return absl::StrCat(absl::Hex(high, absl::kZeroPad16), absl::Hex(low, absl::kZeroPad16));
}

}  // namespace nezha
