// SPDX-License-Identifier: Apache-2.0
// Arbitrary bytes as a peer's address in a Gloo context: an accepted address is the same after
// another encoding and decoding.
#include <cstdlib>
#include <vector>

#include "interop/gloo/address.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using nezha::interop::Address;
  std::vector<char> bytes(data, data + size);
  bytes.resize(::gloo::transport::Address::kMaxByteSize, ' ');
  const auto address = Address::parse(bytes);
  if (!address.ok()) return 0;
  if (address->record().devices.empty()) std::abort();
  const auto again = Address::parse(address->bytes());
  if (!again.ok() || again->process() != address->process() || !again->agrees_with(*address) ||
      again->record().devices != address->record().devices ||
      again->is_complete() != address->is_complete()) {
    std::abort();
  }
  return 0;
}
