// SPDX-License-Identifier: Apache-2.0
#include "flare_offload/wire/frame.h"

#include <random>
#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "gtest/gtest.h"

namespace nezha::flare {
namespace {

using Bytes = std::vector<std::byte>;

Authenticator authenticator() { return Authenticator(Key{}); }

FrameHeader some_header() {
  return {.type = FrameType::kContribution,
          .child = 0x11,
          .is_numbered = true,
          .number = 0x6162,
          .generation = 0x2122,
          .session = 0x31323334,
          .block = {.seq = 0x41424344,
                    .operation_id = 0x51525354,
                    .type = DataType::kUint32,
                    .operation = ReduceOperation::kMax}};
}

Bytes encoded(const FrameHeader& header, const Bytes& payload) {
  Bytes datagram(kMaxDatagram);
  Authenticator signer = authenticator();
  datagram.resize(encode(header, payload, signer, datagram.data()));
  return datagram;
}

Bytes bytes(size_t count, int value = 0x66) { return Bytes(count, static_cast<std::byte>(value)); }

bool is_refused(const Bytes& datagram) { return !decode(datagram).has_value(); }

TEST(Frame, LayoutIsFrozen) {
  const Bytes datagram = encoded(some_header(), bytes(4));
  ASSERT_EQ(datagram.size(), 36);
  const std::string text(reinterpret_cast<const char*>(datagram.data()), datagram.size());
  EXPECT_EQ(absl::BytesToHexString(text.substr(0, kTagOffset)),
            "417411013433323122216261"
            "4443424154535251");
  EXPECT_EQ(absl::BytesToHexString(text.substr(kHeaderSize)), "66666666");
  FrameHeader down = some_header();
  down.is_down = true;
  EXPECT_EQ(encoded(down, {})[3], std::byte{3});
  Authenticator verifier = authenticator();
  EXPECT_TRUE(verifier.verify(datagram));
}

TEST(Frame, ComesBackAsItWas) {
  for (const FrameType type : {FrameType::kContribution, FrameType::kResult}) {
    for (const size_t size : {size_t{0}, size_t{4}, size_t{1440}, kMaxPayload}) {
      FrameHeader header = some_header();
      header.type = type;
      header.is_down = type == FrameType::kResult;
      const Bytes datagram = encoded(header, bytes(size));
      const auto frame = decode(datagram);
      ASSERT_TRUE(frame.has_value());
      EXPECT_EQ(frame->header, header);
      EXPECT_EQ(frame->payload, bytes(size));
    }
  }
}

TEST(Frame, PayloadsOfPendingAndLost) {
  FrameHeader header = some_header();
  header.type = FrameType::kPending;
  std::vector<RankRange> ranges(kMaxChildren, {7, 3});
  const Bytes pending = encoded(header, encode_ranges(ranges));
  ASSERT_FALSE(is_refused(pending));
  EXPECT_EQ(decode_ranges(decode(pending)->payload), ranges);
  ranges.push_back({7, 1});
  EXPECT_TRUE(is_refused(encoded(header, encode_ranges(ranges))));
  EXPECT_TRUE(is_refused(encoded(header, bytes(6))));

  header.type = FrameType::kLost;
  const NumberRange numbers = {0xfff0, 0x20};
  const Bytes lost = encoded(header, encode_lost(numbers));
  ASSERT_FALSE(is_refused(lost));
  EXPECT_EQ(decode_lost(decode(lost)->payload), numbers);
  EXPECT_TRUE(is_refused(encoded(header, bytes(0))));
  EXPECT_TRUE(is_refused(encoded(header, bytes(8))));
}

TEST(Frame, PayloadOfMismatch) {
  FrameHeader header = some_header();
  header.type = FrameType::kMismatch;
  const Mismatch mismatch = {.length = 1440,
                             .ranks = {1, 2},
                             .other = {.seq = header.block.seq,
                                       .operation_id = 7,
                                       .type = DataType::kFloat64,
                                       .operation = ReduceOperation::kMin},
                             .other_length = 24,
                             .other_ranks = {3, 4}};
  Bytes payload = encode_mismatch(mismatch);
  const Bytes datagram = encoded(header, payload);
  ASSERT_FALSE(is_refused(datagram));
  EXPECT_EQ(decode_mismatch(*decode(datagram)), mismatch);
  EXPECT_TRUE(is_refused(encoded(header, bytes(0))));
  EXPECT_TRUE(is_refused(encoded(header, bytes(4))));
  payload[20] = std::byte{0xff};  // no such type exists
  EXPECT_TRUE(is_refused(encoded(header, payload)));
}

TEST(Frame, RefusesWhatIsTooShortOrTooLong) {
  const Bytes whole = encoded(some_header(), bytes(kMaxPayload));
  for (size_t size = 0; size < kHeaderSize; ++size) {
    EXPECT_TRUE(is_refused(Bytes(whole.begin(), whole.begin() + static_cast<ptrdiff_t>(size))));
  }
  Bytes longer = whole;
  longer.resize(kMaxDatagram + 4);
  EXPECT_FALSE(is_refused(whole));
  EXPECT_TRUE(is_refused(longer));
}

TEST(Frame, RefusesPartsOfElements) {
  EXPECT_TRUE(is_refused(encoded(some_header(), bytes(5))));
  FrameHeader header = some_header();
  header.block.type = DataType::kInt8;
  EXPECT_FALSE(is_refused(encoded(header, bytes(5))));
}

// Tries all values of the bytes that do not allow every value.
TEST(Frame, RefusesUnknownVersionsTypesOperationsAndChildren) {
  const Bytes good = encoded(some_header(), bytes(8));
  const auto accepted = [&](size_t offset) {
    std::string values;
    for (int value = 0; value < 256; ++value) {
      Bytes datagram = good;
      datagram[offset] = static_cast<std::byte>(value);
      if (!is_refused(datagram)) values += static_cast<char>(value);
    }
    return values;
  };
  EXPECT_EQ(accepted(0), "\x41\x42\x43");  // 8 bytes are no payload for the other types
  EXPECT_EQ(accepted(1).size(), 12 * 4);
  EXPECT_EQ(accepted(1).substr(0, 5), "\x11\x12\x13\x14\x21");
  EXPECT_EQ(accepted(2).size(), kMaxChildren);
  EXPECT_EQ(accepted(3).size(), 256);  // the reserved flags are ignored
}

TEST(Frame, DecodesNoiseWithinItsLimits) {
  std::mt19937 random(1);
  for (int i = 0; i < 20000; ++i) {
    Bytes datagram(random() % 128);
    for (std::byte& byte : datagram) byte = static_cast<std::byte>(random());
    if (!datagram.empty() && random() % 2 == 0) datagram[0] = std::byte{0x41};
    const auto frame = decode(datagram);
    if (!frame) continue;
    EXPECT_LT(frame->header.child, kMaxChildren);
    EXPECT_EQ(frame->payload.size(), datagram.size() - kHeaderSize);
    EXPECT_EQ(frame->payload.size() % sizeOf(frame->header.block.type), 0);
  }
}

TEST(Frame, PayloadOfAnMtu) {
  EXPECT_EQ(payload_for(1500, false), 1440);
  EXPECT_EQ(payload_for(1500, true), 1416);  // 1420, rounded down to whole elements of 8 bytes
  EXPECT_EQ(payload_for(9000, false), kMaxPayload);
  EXPECT_EQ(payload_for(65536, false), kMaxPayload);
  EXPECT_EQ(payload_for(68, false), 8);
  EXPECT_EQ(payload_for(60, false), 0);
  EXPECT_EQ(payload_for(0, true), 0);
}

}  // namespace
}  // namespace nezha::flare
