// SPDX-License-Identifier: Apache-2.0
// Any bytes as what one rank tells another of their session: what passes decode() says the same
// after another way.
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
