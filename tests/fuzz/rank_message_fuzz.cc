// SPDX-License-Identifier: Apache-2.0
// Arbitrary bytes as messages about a session between ranks: what decode() accepts is the same
// after another round trip.
#include <cstdlib>
#include <string>

#include "flare_offload/engine/rank_message.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace nezha::flare::rank_message;
  const auto message = decode({reinterpret_cast<const char*>(data), size});
  if (!message.ok()) return 0;
  const std::string again = encode(*message);
  const auto same = decode(again);
  if (again.size() > size || !same.ok() || same->index() != message->index() ||
      encode(*same) != again) {
    std::abort();
  }
  return 0;
}
