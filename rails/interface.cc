// SPDX-License-Identifier: Apache-2.0
#include "rails/interface.h"

#include <arpa/inet.h>

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace nezha {

// RFC 3927 and RFC 4291: 169.254.0.0/16 and fe80::/10.
bool InterfaceAddress::is_link_local() const {
  return is_ipv6 ? bytes[0] == 0xfe && (bytes[1] & 0xc0) == 0x80
                 : bytes[0] == 169 && bytes[1] == 254;
}

InterfaceAddress InterfaceAddress::subnet() const {
  InterfaceAddress masked = *this;
  for (int i = 0; i < static_cast<int>(bytes.size()); ++i) {
    const int host_bits = std::clamp(8 * (i + 1) - prefix, 0, 8);
    masked.bytes[static_cast<size_t>(i)] &= static_cast<uint8_t>(0xff << host_bits);
  }
  return masked;
}

std::string InterfaceAddress::str() const {
  std::array<char, INET6_ADDRSTRLEN> text{};
  inet_ntop(is_ipv6 ? AF_INET6 : AF_INET, bytes.data(), text.data(), text.size());
  return absl::StrCat(text.data(), "/", prefix);
}

}  // namespace nezha
