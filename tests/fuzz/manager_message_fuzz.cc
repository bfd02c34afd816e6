// SPDX-License-Identifier: Apache-2.0
// Arbitrary text as messages between hosts, manager and switches: what parse() accepts is within
// its limits, and is the same after another round trip.
#include <cstdlib>
#include <string>
#include <variant>

#include "flare_offload/wire/frame.h"
#include "flare_offload/wire/messages.h"

namespace nezha::flare::message {
namespace {

bool is_group(const std::optional<Address>& group) { return !group || group->is_multicast(); }

struct IsWithinLimits {
  bool operator()(const Join& m) const {
    return m.rank >= 0 && m.rank < m.size && m.size <= kMaxRanks && m.payload <= kMaxPayload &&
           m.window > 0 && m.streams > 0 && m.streams <= kMaxStreams;
  }
  bool operator()(const Renew& m) const {
    return is_group(m.group) && m.rank >= 0 && m.rank < m.size && m.size <= kMaxRanks &&
           m.streams > 0 && m.streams <= kMaxStreams;
  }
  bool operator()(const Granted& m) const {
    return is_group(m.group) && m.child < kMaxChildren && m.payload <= kMaxPayload &&
           m.window > 0 && m.lease > 0 && m.streams > 0 && m.streams <= kMaxStreams;
  }
  bool operator()(const Install& m) const {
    return m.streams > 0 && m.streams <= kMaxStreams && m.lease > 0;
  }
  template <typename T>
  bool operator()(const T& /*has no numbers that others rely on*/) const {
    return true;
  }
};

void check(absl::string_view text) {
  const auto message = parse(text);
  if (!message.ok()) return;
  if (!std::visit(IsWithinLimits(), *message)) std::abort();
  const std::string again = encode(*message);
  const auto same = parse(again);
  if (!same.ok() || same->index() != message->index() || encode(*same) != again) std::abort();
}

}  // namespace
}  // namespace nezha::flare::message

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  nezha::flare::message::check({reinterpret_cast<const char*>(data), size});
  return 0;
}
