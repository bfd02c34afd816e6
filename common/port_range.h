// A range of ports, such as firewalls let through.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace nezha {

struct PortRange {
  uint16_t first = 0;
  uint16_t last = 0;

  bool is_any() const { return first == 0; }  // the kernel chooses one
  std::string str() const;                    // 20000-20100
  // As str() gives it, with first <= last. Empty text: any.
  static absl::StatusOr<PortRange> parse(absl::string_view text);
  static constexpr const char* kMayBe = "a range of ports such as 20000-20100, from 1 to 65535";
};

}  // namespace nezha
