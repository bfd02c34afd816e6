// SPDX-License-Identifier: Apache-2.0
#include "transport/wire.h"

#include <array>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace nezha::wire {
namespace {

template <typename Bytes>
std::string hex(const Bytes& bytes) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (const std::byte byte : bytes) {
    text += kDigits[static_cast<size_t>(byte) >> 4];
    text += kDigits[static_cast<size_t>(byte) & 15];
  }
  return text;
}

Hello some_hello() {
  Hello hello;
  hello.job = {0x0102030405060708, 0x1112131415161718};
  hello.source = {0x2122232425262728, 0x3132333435363738};
  hello.target = {0x4142434445464748, 0x5152535455565758};
  hello.link_id = 0x6162636465666768;
  hello.generation = 0x71727374;
  hello.rail = "blue";
  return hello;
}

DataHeader some_data() {
  DataHeader data;
  data.info = {.context = 0x0102030405060708,
               .tag = 0x1112131415161718,
               .signature = 0x2122232425262728,
               .total = 0x0032333435363738,
               .plan = 0x41424344,
               .epoch = 0x51525354,
               .root = 0x91929394};
  data.number = 0x6162636465666768;
  data.offset = 0x0002737475767778;
  data.previous = 0x81828384;
  return data;
}

std::array<std::byte, kDataHeaderSize> encoded(const DataHeader& data) {
  std::array<std::byte, kDataHeaderSize> bytes{};
  encode(data, bytes.data());
  return bytes;
}

std::array<std::byte, kFrameHeaderSize> encoded(const FrameHeader& frame) {
  std::array<std::byte, kFrameHeaderSize> bytes{};
  encode(frame, bytes.data());
  return bytes;
}

absl::Span<const std::byte> span(const std::string& text) {
  return {reinterpret_cast<const std::byte*>(text.data()), text.size()};
}

// ---- The frozen layout -------------------------------------------------------------------------

TEST(WireLayout, Hello) {
  EXPECT_EQ(hex(encode(some_hello())),
            "4e455a48410d0a00"
            "0a00"
            "0000"
            "74737271"
            "08070605040302011817161514131211"
            "28272625242322213837363534333231"
            "48474645444342415857565554535251"
            "6867666564636261"
            "626c756500000000000000000000000000000000000000000000000000000000"
            "0000000000000000000000000000000000000000"
            "00000000");
}

TEST(WireLayout, Welcome) {
  EXPECT_EQ(hex(encode(Welcome{WelcomeCode::kDuplicate, 1, 0x71727374})),
            "4e455a48410d0a00"
            "0100"
            "0500"
            "74737271"
            "00000000000000000000000000000000");
}

TEST(WireLayout, DataFrame) {
  FrameHeader frame;
  frame.type = FrameType::kData;
  frame.flags = kFlagCharged | kFlagAckNow;
  frame.length = 0x00020304;
  frame.acked = 0x1112131415161718;
  frame.credit = 0x2122232425262728;
  EXPECT_EQ(hex(encoded(frame)),
            "01"
            "03"
            "0000"
            "04030200"
            "1817161514131211"
            "2827262524232221");
  EXPECT_EQ(hex(encoded(some_data())),
            "0807060504030201"
            "1817161514131211"
            "2827262524232221"
            "3837363534333200"
            "6867666564636261"
            "7877767574730200"
            "44434241"
            "54535251"
            "84838281"
            "00000000"
            "94939291"
            "00000000");
}

TEST(WireLayout, ControlBodies) {
  const std::string number = encode_number(0x0102030405060708);
  EXPECT_EQ(hex(span(number)), "0807060504030201");
  const std::string abort =
      encode(Abort{{0x0102030405060708, 0x1112131415161718}, 0x21222324, {0x31323334}, "no"});
  EXPECT_EQ(hex(span(abort)),
            "0807060504030201"
            "1817161514131211"
            "24232221"
            "01000000"
            "34333231"
            "6e6f");
}

TEST(WireLayout, NumbersOfTypesAndCodes) {
  EXPECT_EQ(static_cast<int>(FrameType::kData), 1);
  EXPECT_EQ(static_cast<int>(FrameType::kAck), 2);
  EXPECT_EQ(static_cast<int>(FrameType::kGrant), 3);
  EXPECT_EQ(static_cast<int>(FrameType::kLinkDown), 4);
  EXPECT_EQ(static_cast<int>(FrameType::kPing), 5);
  EXPECT_EQ(static_cast<int>(FrameType::kGoodbye), 6);
  EXPECT_EQ(static_cast<int>(FrameType::kAbort), 7);
  EXPECT_EQ(static_cast<int>(FrameType::kRollCall), 8);
  EXPECT_EQ(static_cast<int>(FrameType::kLeave), 9);
  EXPECT_EQ(static_cast<int>(FrameType::kFiller), 10);
  EXPECT_EQ(static_cast<int>(FrameType::kJoin), 11);
  EXPECT_EQ(kFlagCharged, 1);
  EXPECT_EQ(kFlagAckNow, 2);
  EXPECT_EQ(kFlagWantGrant, 4);
}

// ---- Hello and welcome -------------------------------------------------------------------------

TEST(Wire, HelloComesBack) {
  const auto hello = decode_hello(encode(some_hello()));
  ASSERT_TRUE(hello.ok());
  EXPECT_EQ(hello->job, some_hello().job);
  EXPECT_EQ(hello->source, some_hello().source);
  EXPECT_EQ(hello->target, some_hello().target);
  EXPECT_EQ(hello->link_id, some_hello().link_id);
  EXPECT_EQ(hello->generation, some_hello().generation);
  EXPECT_EQ(hello->rail, "blue");
  Hello longest = some_hello();
  longest.rail = std::string(kMaxRailName, 'r');
  EXPECT_EQ(decode_hello(encode(longest))->rail, longest.rail);
}

TEST(Wire, GarbledHellosAreRefused) {
  const HelloBytes good = encode(some_hello());
  for (size_t i = 0; i < 8; ++i) {
    HelloBytes bad = good;
    bad[i] ^= std::byte{1};
    EXPECT_TRUE(absl::IsInvalidArgument(decode_hello(bad).status())) << "byte " << i;
  }
  for (const size_t i : {size_t{8}, size_t{9}}) {
    HelloBytes bad = good;
    bad[i] ^= std::byte{2};
    EXPECT_TRUE(absl::IsFailedPrecondition(decode_hello(bad).status())) << "byte " << i;
  }
  Hello nameless = some_hello();
  nameless.rail = "";
  EXPECT_TRUE(absl::IsInvalidArgument(decode_hello(encode(nameless)).status()));
  HelloBytes endless = good;
  for (size_t i = 72; i < 72 + kMaxRailName + 1; ++i) endless[i] = std::byte{'r'};
  EXPECT_TRUE(absl::IsInvalidArgument(decode_hello(endless).status()));
  HelloBytes reserved = good;
  reserved[10] = reserved[120] = std::byte{0xff};
  EXPECT_TRUE(decode_hello(reserved).ok()) << "reserved fields are ignored";
}

TEST(Wire, WelcomeComesBackAndGarbledOnesAreRefused) {
  for (uint16_t code = 0; code <= 6; ++code) {
    const auto welcome =
        decode_welcome(encode(Welcome{static_cast<WelcomeCode>(code), kVersion + 1, 9}));
    ASSERT_TRUE(welcome.ok());
    EXPECT_EQ(static_cast<uint16_t>(welcome->code), code);
    EXPECT_EQ(welcome->version, kVersion + 1);
    EXPECT_EQ(welcome->generation, 9u);
  }
  EXPECT_FALSE(decode_welcome(encode(Welcome{static_cast<WelcomeCode>(7), 1, 1})).ok());
  WelcomeBytes bad = encode(Welcome{});
  bad[3] ^= std::byte{8};
  EXPECT_TRUE(absl::IsInvalidArgument(decode_welcome(bad).status()));
}

// ---- Frames ------------------------------------------------------------------------------------

TEST(Wire, FrameHeadersComeBack) {
  for (uint8_t type = 1; type <= 7; ++type) {
    FrameHeader frame;
    frame.type = static_cast<FrameType>(type);
    frame.flags = 5;
    frame.length = kMaxControlBody;
    frame.acked = uint64_t{1} << 63;
    frame.credit = 42;
    const auto back = decode_frame(encoded(frame).data());
    ASSERT_TRUE(back.ok());
    EXPECT_EQ(back->type, frame.type);
    EXPECT_EQ(back->flags, 5);
    EXPECT_EQ(back->length, kMaxControlBody);
    EXPECT_EQ(back->acked, frame.acked);
    EXPECT_EQ(back->credit, 42u);
  }
}

TEST(Wire, FrameHeadersBeyondTheLimitsAreRefused) {
  FrameHeader frame;
  for (const int type : {0, 12, 99, 255}) {
    frame.type = static_cast<FrameType>(type);
    EXPECT_TRUE(absl::IsInvalidArgument(decode_frame(encoded(frame).data()).status())) << type;
  }
  frame.type = FrameType::kData;
  frame.length = kMaxSegment;
  EXPECT_TRUE(decode_frame(encoded(frame).data()).ok());
  frame.length = kMaxSegment + 1;
  EXPECT_FALSE(decode_frame(encoded(frame).data()).ok());
  for (int type = 2; type <= 11; ++type) {
    frame.type = static_cast<FrameType>(type);
    frame.length = kMaxControlBody + 1;
    EXPECT_FALSE(decode_frame(encoded(frame).data()).ok()) << type;
  }
}

TEST(Wire, DataHeadersComeBack) {
  const auto data = decode_data(encoded(some_data()).data(), 1000);
  ASSERT_TRUE(data.ok()) << data.status();
  EXPECT_EQ(data->info, some_data().info);
  EXPECT_EQ(data->number, some_data().number);
  EXPECT_EQ(data->offset, some_data().offset);
  EXPECT_EQ(data->previous, some_data().previous);
}

TEST(Wire, DataHeadersThatMakeNoSenseAreRefused) {
  const auto refused = [](const DataHeader& data, uint32_t length) {
    return absl::IsInvalidArgument(decode_data(encoded(data).data(), length).status());
  };
  DataHeader good;
  good.number = 5;
  good.previous = 4;
  good.info.total = 100;
  good.offset = 60;
  EXPECT_FALSE(refused(good, 40));
  EXPECT_TRUE(refused(good, 41));
  DataHeader bad = good;
  bad.offset = 101;
  EXPECT_TRUE(refused(bad, 0));
  bad.offset = ~uint64_t{0};  // the end overflows
  EXPECT_TRUE(refused(bad, 40));
  bad = good;
  bad.number = 0;
  EXPECT_TRUE(refused(bad, 40));
  bad = good;
  bad.previous = 5;
  EXPECT_TRUE(refused(bad, 40));
  bad = good;
  bad.info.total = kMaxMessage;
  EXPECT_FALSE(refused(bad, 40));
  bad.info.total = kMaxMessage + 1;
  EXPECT_TRUE(refused(bad, 40));
}

TEST(Wire, ControlBodiesComeBackAndOthersAreRefused) {
  EXPECT_EQ(*decode_number(span(encode_number(77))), 77u);
  for (const size_t size : {0, 7, 9}) {
    EXPECT_FALSE(decode_number(span(std::string(size, 'x'))).ok()) << size;
  }
  const auto abort = decode_abort(span(encode(Abort{{1, 2}, 3, {4, 5}, "rank 3 died"})));
  ASSERT_TRUE(abort.ok());
  EXPECT_EQ(abort->context, (UniqueId{1, 2}));
  EXPECT_EQ(abort->rank, 3u);
  EXPECT_EQ(abort->lost, (std::vector<uint32_t>{4, 5}));
  EXPECT_EQ(abort->reason, "rank 3 died");
  const std::string whole = encode(Abort{{1, 2}, 3, {4, 5}, ""});
  for (size_t size = 0; size < whole.size(); ++size) {
    EXPECT_FALSE(decode_abort(span(whole.substr(0, size))).ok()) << size;
  }
  EXPECT_EQ(decode_abort(span(whole))->reason, "");
  EXPECT_FALSE(decode_abort(span(std::string(kMaxControlBody, 'x'))).ok()) << "too many ranks";
}

TEST(Wire, IdsComeBackAsTheyWere) {
  const std::string body = encode_id({1, 2});
  EXPECT_EQ(*decode_id(span(body)), (UniqueId{1, 2}));
  EXPECT_FALSE(decode_id(span(body.substr(1))).ok());
  EXPECT_FALSE(decode_id(span(body + "x")).ok());
}

TEST(Wire, LinksThatAreDownComeBackAsTheyWere) {
  const auto down = decode_link_down(span(encode(LinkDown{uint64_t{1} << 40, 9000})));
  ASSERT_TRUE(down.ok()) << down.status();
  EXPECT_EQ(down->link, uint64_t{1} << 40);
  EXPECT_EQ(down->lost_packet, 9000u);
  for (const size_t size : {0, 8, 11, 13}) {
    EXPECT_FALSE(decode_link_down(span(std::string(size, 'x'))).ok()) << size;
  }
}

TEST(Wire, RollCallsComeBackAsTheyWere) {
  const RollCall sent{{1, 2}, 3, 5, uint64_t{1} << 40, uint64_t{7} << 50, RollCallKind::kAbsent};
  const std::string body = encode(sent);
  const auto call = decode_roll_call(span(body));
  ASSERT_TRUE(call.ok()) << call.status();
  EXPECT_EQ(call->context, (UniqueId{1, 2}));
  EXPECT_EQ(call->tag, 3u);
  EXPECT_EQ(call->ordinal, uint64_t{1} << 40);
  EXPECT_EQ(call->rank, 5u);
  EXPECT_EQ(call->signature, uint64_t{7} << 50);
  EXPECT_EQ(call->kind, RollCallKind::kAbsent);
  for (const char kind : {'\0', '\5', '\377'}) {
    EXPECT_FALSE(decode_roll_call(span(body.substr(0, body.size() - 1) + kind)).ok());
  }
  EXPECT_FALSE(decode_roll_call(span(body.substr(1))).ok());
  EXPECT_FALSE(decode_roll_call(span(body + "x")).ok());
}

TEST(Wire, AbortReasonsAreBoundedAndPrintable) {
  const std::string body = encode(Abort{{1, 2}, 3, {}, std::string(5000, 'x')});
  EXPECT_EQ(body.size(), kMaxControlBody);
  EXPECT_EQ(decode_abort(span(body))->reason, std::string(kMaxControlBody - 24, 'x'));
  EXPECT_EQ(decode_abort(span(encode(Abort{{1, 2}, 3, {}, "a\x1b[2J\n\x7f\xffz"})))->reason,
            "a?[2J???z");
  const std::string many = encode(Abort{{1, 2}, 3, std::vector<uint32_t>(1000), "why"});
  EXPECT_EQ(decode_abort(span(many))->lost.size(), kMaxLost);
  EXPECT_EQ(decode_abort(span(many))->reason, "why");
}

TEST(Wire, RandomBytesAreRefusedOrMakeSense) {
  std::mt19937_64 random(20);
  for (int round = 0; round < 20'000; ++round) {
    HelloBytes hello_bytes = encode(some_hello());
    std::array<std::byte, 256> noise;
    for (auto& byte : noise) byte = static_cast<std::byte>(random());
    // Pure noise, or a message with one byte of noise.
    if (round % 2 == 0) {
      std::memcpy(hello_bytes.data(), noise.data(), hello_bytes.size());
    } else {
      hello_bytes[random() % hello_bytes.size()] = noise[0];
    }
    if (const auto hello = decode_hello(hello_bytes); hello.ok()) {
      EXPECT_FALSE(hello->rail.empty());
      EXPECT_LE(hello->rail.size(), kMaxRailName);
    }
    WelcomeBytes welcome_bytes = encode(Welcome{});
    welcome_bytes[random() % welcome_bytes.size()] = noise[1];
    if (const auto welcome = decode_welcome(welcome_bytes); welcome.ok()) {
      EXPECT_LE(static_cast<int>(welcome->code), 6);
    }
    if (const auto frame = decode_frame(noise.data()); frame.ok()) {
      EXPECT_LE(frame->length, kMaxSegment);
    }
    const auto length = static_cast<uint32_t>(random() % (kMaxSegment + 1));
    if (const auto data = decode_data(noise.data() + 64, length); data.ok()) {
      EXPECT_LE(data->offset + length, data->info.total);
      EXPECT_LT(data->previous, data->number);
    }
    const size_t size = random() % 64;
    if (const auto abort = decode_abort({noise.data(), size}); abort.ok()) {
      EXPECT_EQ(abort->reason.size(), size - 20);
    }
    EXPECT_EQ(decode_number({noise.data(), size}).ok(), size == 8);
  }
}

}  // namespace
}  // namespace nezha::wire
