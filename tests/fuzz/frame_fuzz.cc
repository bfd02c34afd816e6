// SPDX-License-Identifier: Apache-2.0
// Arbitrary bytes as a datagram: what decode() accepts is within its limits, and is the same after
// another encode() and decode().
#include <cstdlib>
#include <vector>

#include "flare_offload/wire/frame.h"

namespace nezha::flare {
namespace {

void require(bool holds) {
  if (!holds) std::abort();
}

void check_payload(const Frame& frame) {
  const std::vector<std::byte> payload(frame.payload.begin(), frame.payload.end());
  if (frame.header.type == FrameType::kPending) {
    require(encode_ranges(decode_ranges(payload)) == payload);
  } else if (frame.header.type == FrameType::kLost) {
    require(encode_lost(decode_lost(payload)) == payload);
  } else if (frame.header.type == FrameType::kMismatch) {
    const Mismatch mismatch = decode_mismatch(frame);
    const std::vector<std::byte> again = encode_mismatch(mismatch);
    require(decode_mismatch({frame.header, again}) == mismatch);
  } else {
    require(payload.size() % sizeOf(frame.header.block.type) == 0);
  }
}

void check(absl::Span<const std::byte> datagram) {
  static Authenticator authenticator{Key{}};
  const std::optional<Frame> frame = decode(datagram);
  if (!frame) return;
  require(frame->header.child < kMaxChildren && frame->payload.size() <= kMaxPayload);
  check_payload(*frame);
  std::vector<std::byte> again(kMaxDatagram);
  again.resize(encode(frame->header, frame->payload, authenticator, again.data()));
  require(authenticator.verify(again));
  const std::optional<Frame> same = decode(again);
  require(same && same->header == frame->header && same->payload == frame->payload);
  authenticator.verify(datagram);
}

}  // namespace
}  // namespace nezha::flare

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  nezha::flare::check({reinterpret_cast<const std::byte*>(data), size});
  return 0;
}
