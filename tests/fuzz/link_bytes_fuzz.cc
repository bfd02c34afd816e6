// SPDX-License-Identifier: Apache-2.0
// Arbitrary bytes on a connection: what a decode function accepts is within its limits, and is the
// same after another encoding and decoding.
#include <algorithm>
#include <cstdlib>
#include <string>

#include "transport/wire.h"

namespace nezha::wire {
namespace {

void require(bool holds) {
  if (!holds) std::abort();
}

template <typename Bytes>
Bytes first_of(absl::Span<const std::byte> input) {
  Bytes bytes{};
  std::copy_n(input.begin(), std::min(input.size(), bytes.size()), bytes.begin());
  return bytes;
}

void check_handshake(absl::Span<const std::byte> input) {
  if (const auto hello = decode_hello(first_of<HelloBytes>(input)); hello.ok()) {
    require(!hello->rail.empty() && hello->rail.size() <= kMaxRailName);
    const auto again = decode_hello(encode(*hello));
    require(again.ok() && encode(*again) == encode(*hello));
  }
  if (const auto welcome = decode_welcome(first_of<WelcomeBytes>(input)); welcome.ok()) {
    require(welcome->code <= WelcomeCode::kClosing);
    const auto again = decode_welcome(encode(*welcome));
    require(again.ok() && encode(*again) == encode(*welcome));
  }
}

absl::Span<const std::byte> bytes_of(const std::string& text) {
  return {reinterpret_cast<const std::byte*>(text.data()), text.size()};
}

void check_body(FrameType type, absl::Span<const std::byte> body) {
  if (type == FrameType::kLinkDown) {
    const auto down = decode_link_down(body);
    require(down.ok() == (body.size() == 12));
    if (down.ok()) require(bytes_of(encode(*down)) == body);
  } else if (type == FrameType::kGrant) {
    const auto number = decode_number(body);
    require(number.ok() == (body.size() == 8));
    if (number.ok()) require(bytes_of(encode_number(*number)) == body);
  } else if (type == FrameType::kLeave || type == FrameType::kJoin) {
    const auto id = decode_id(body);
    require(id.ok() == (body.size() == 16));
    if (id.ok()) require(bytes_of(encode_id(*id)) == body);
  } else if (type == FrameType::kAbort) {
    const auto abort = decode_abort(body);
    if (!abort.ok()) return;
    require(std::all_of(abort->reason.begin(), abort->reason.end(),
                        [](char c) { return c >= ' ' && c < 127; }));
    const std::string text = encode(*abort);
    require(text.size() == body.size() && decode_abort(bytes_of(text))->reason == abort->reason);
  } else if (type == FrameType::kRollCall) {
    const auto call = decode_roll_call(body);
    if (call.ok()) require(bytes_of(encode(*call)) == body);
  }
}

void check_frames(absl::Span<const std::byte> input) {
  while (input.size() >= kFrameHeaderSize) {
    const auto frame = decode_frame(input.data());
    if (!frame.ok()) return;
    input.remove_prefix(kFrameHeaderSize);
    if (frame->type == FrameType::kData) {
      require(frame->length <= kMaxSegment);
      if (input.size() < kDataHeaderSize) return;
      const auto data = decode_data(input.data(), frame->length);
      if (!data.ok()) return;
      require(data->number > 0 && data->previous < data->number &&
              data->info.total <= kMaxMessage && data->offset + frame->length <= data->info.total);
      std::byte again[kDataHeaderSize];
      encode(*data, again);
      require(decode_data(again, frame->length)->info == data->info);
      input.remove_prefix(kDataHeaderSize);
    } else {
      require(frame->length <= kMaxControlBody);
      if (input.size() < frame->length) return;
      check_body(frame->type, input.subspan(0, frame->length));
    }
    input.remove_prefix(std::min<size_t>(input.size(), frame->length));
  }
}

}  // namespace
}  // namespace nezha::wire

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const absl::Span<const std::byte> input(reinterpret_cast<const std::byte*>(data), size);
  nezha::wire::check_handshake(input);
  nezha::wire::check_frames(input);
  return 0;
}
