// SPDX-License-Identifier: Apache-2.0
// Connections to an endpoint that do not come from its peers, or do not follow the protocol.

#include <array>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/unit/transport/descriptor_limit.h"
#include "tests/unit/transport/endpoint_fixture.h"
#include "tests/unit/transport/stranger.h"
#include "transport/endpoint.h"
#include "transport/tcp/device.h"

namespace nezha {
namespace {

using testing::exchange;
using testing::Host;
using testing::kJob;
using testing::Stranger;

class EndpointStrangers : public ::testing::Test {
 protected:
  wire::Hello hello() {
    wire::Hello result;
    result.job = kJob;
    result.source = UniqueId{1, 2};
    result.target = host_.endpoint->process();
    result.link_id = 5;
    result.generation = 1;
    result.rail = "a";
    return result;
  }
  wire::WelcomeCode answer(const wire::Hello& to) {
    Stranger stranger(host_.addresses["a"]);
    stranger.write(wire::encode(to));
    const auto welcome = stranger.welcome();
    EXPECT_TRUE(welcome.ok()) << welcome.status();
    return welcome.ok() ? welcome->code : wire::WelcomeCode::kClosing;
  }
  // Checks that the host still serves other processes.
  void expect_well() {
    Host other;
    exchange(host_, other, ++tag_, 100'000);
  }

  Host host_;
  uint64_t tag_ = 0;
};

TEST_F(EndpointStrangers, ConnectionsWaitWithoutSpinningWhenDescriptorsRunOut) {
  Progress& progress = host_.endpoint->progress();
  const auto hung_up_on = [](Stranger& stranger) {
    stranger.write(wire::HelloBytes{});
    return stranger.is_closed();
  };
  // A sanitizer opens descriptors of its own the first time that it sees a type.
  Stranger first(host_.addresses["a"]);
  EXPECT_TRUE(hung_up_on(first));
  std::unique_ptr<Stranger> stranger;
  {
    Progress::Guard guard(progress);  // so that no connection is accepted meanwhile
    stranger = std::make_unique<Stranger>(host_.addresses["a"]);
    const DescriptorLimit none(next_descriptor());
    // This thread drives, and would be the one that spins. The test measures CPU time, because
    // looking now and then takes little of it, however busy the machine is.
    const auto cpu = [] {
      timespec time{};
      clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
      return Nanos{time.tv_sec} * kSecond + time.tv_nsec;
    };
    const Nanos before = cpu();
    Waiter never;
    EXPECT_FALSE(progress.wait(guard, never, now() + kSecond));
    EXPECT_LT(cpu() - before, kSecond / 4);
  }
  // Once descriptors are free, the connection is accepted. It is closed because it sent no hello.
  EXPECT_TRUE(hung_up_on(*stranger));
  expect_well();
}

TEST_F(EndpointStrangers, GarbageIsHungUpOn) {
  {
    Stranger stranger(host_.addresses["a"]);
    stranger.write(std::string(200, 'G').data(), 200);
    EXPECT_TRUE(stranger.is_closed());
  }
  {
    Stranger half(host_.addresses["a"]);
    half.write(wire::encode(hello()).data(), 50);
  }
  Stranger silent(host_.addresses["a"]);
  expect_well();
}

TEST_F(EndpointStrangers, HellosForOthersAreRefusedWithTheReason) {
  wire::Hello wrong = hello();
  wrong.target.low ^= 1;
  EXPECT_EQ(answer(wrong), wire::WelcomeCode::kWrongTarget);
  wrong = hello();
  wrong.job.low ^= 1;
  EXPECT_EQ(answer(wrong), wire::WelcomeCode::kUnknownJob);
  wrong = hello();
  wrong.rail = "b";
  EXPECT_EQ(answer(wrong), wire::WelcomeCode::kNoRail);
  wrong = hello();
  wrong.source = wrong.target;
  EXPECT_EQ(answer(wrong), wire::WelcomeCode::kNoRail);
  {
    Stranger stranger(host_.addresses["a"]);
    wire::HelloBytes bytes = wire::encode(hello());
    bytes[8] = std::byte{wire::kVersion + 1};
    stranger.write(bytes);
    const auto welcome = stranger.welcome();
    ASSERT_TRUE(welcome.ok());
    EXPECT_EQ(welcome->code, wire::WelcomeCode::kWrongVersion);
    EXPECT_EQ(welcome->version, wire::kVersion);
    EXPECT_TRUE(stranger.is_closed());
  }
  EXPECT_EQ(answer(hello()), wire::WelcomeCode::kAccepted);
  expect_well();
}

TEST_F(EndpointStrangers, AHelloMayComeInPieces) {
  Stranger stranger(host_.addresses["a"]);
  const wire::HelloBytes bytes = wire::encode(hello());
  for (const std::byte byte : bytes) stranger.write(&byte, 1);
  const auto welcome = stranger.welcome();
  ASSERT_TRUE(welcome.ok());
  EXPECT_EQ(welcome->code, wire::WelcomeCode::kAccepted);
  EXPECT_EQ(welcome->generation, 1u);
}

TEST_F(EndpointStrangers, AnOlderGenerationIsADuplicateAndANewerOneReplacesTheLink) {
  Stranger first(host_.addresses["a"]);
  wire::Hello said = hello();
  said.generation = 5;
  first.write(wire::encode(said));
  ASSERT_EQ(first.welcome()->code, wire::WelcomeCode::kAccepted);
  for (const uint32_t generation : {4u, 5u}) {
    said.generation = generation;
    EXPECT_EQ(answer(said), wire::WelcomeCode::kDuplicate);
  }
  Stranger second(host_.addresses["a"]);
  said.generation = 6;
  second.write(wire::encode(said));
  EXPECT_EQ(second.welcome()->code, wire::WelcomeCode::kAccepted);
  EXPECT_TRUE(first.is_closed());
}

TEST_F(EndpointStrangers, FramesThatBreakTheProtocolEndTheConnection) {
  struct Case {
    const char* what;
    wire::FrameHeader frame;
    wire::DataHeader data;
  };
  std::vector<Case> cases;
  const auto add = [&](const char* what) -> Case& {
    cases.push_back({what, {}, {}});
    cases.back().frame.type = wire::FrameType::kData;
    cases.back().data.number = 1;
    cases.back().data.info.total = 100;
    cases.back().frame.length = 100;
    cases.back().frame.flags = wire::kFlagCharged;
    return cases.back();
  };
  add("a frame beyond the limit").frame.length = wire::kMaxSegment + 1;
  add("an unknown type").frame.type = static_cast<wire::FrameType>(99);
  add("an acknowledgement of what was not sent").frame.acked = 1;
  add("a segment outside of its message").data.offset = 1;
  add("message 0").data.number = 0;
  add("a message before the first").data.previous = 1;
  add("uncharged and unasked").frame.flags = 0;
  Case& large = add("beyond the credit");
  large.data.info.total = large.frame.length = wire::kInitialCredit + 1;
  Case& control = add("a control frame beyond the limit");
  control.frame.type = wire::FrameType::kGrant;
  control.frame.length = wire::kMaxControlBody + 1;
  uint32_t generation = 1;
  for (const Case& bad : cases) {
    SCOPED_TRACE(bad.what);
    Stranger stranger(host_.addresses["a"]);
    wire::Hello said = hello();
    said.generation = ++generation;
    said.source.low = 100 + generation;  // so that it has its own channel
    stranger.write(wire::encode(said));
    const auto welcome = stranger.welcome();
    ASSERT_TRUE(welcome.ok());
    ASSERT_EQ(welcome->code, wire::WelcomeCode::kAccepted);
    std::array<std::byte, wire::kFrameHeaderSize + wire::kDataHeaderSize> head{};
    wire::encode(bad.frame, head.data());
    wire::encode(bad.data, head.data() + wire::kFrameHeaderSize);
    stranger.write(head);
    EXPECT_TRUE(stranger.is_closed());
  }
  expect_well();
}

TEST_F(EndpointStrangers, RandomFramesDoNoHarm) {
  std::mt19937_64 random(4711);
  for (uint32_t round = 0; round < 100; ++round) {
    Stranger stranger(host_.addresses["a"]);
    wire::Hello said = hello();
    said.source.low = 1000 + round;
    stranger.write(wire::encode(said));
    ASSERT_EQ(stranger.welcome()->code, wire::WelcomeCode::kAccepted);
    std::string bytes;
    while (bytes.size() < 4000) {
      // Partly plausible: a known type, and lengths that are not always absurd.
      wire::FrameHeader frame;
      frame.type = static_cast<wire::FrameType>(1 + random() % 7);
      frame.flags = static_cast<uint8_t>(random());
      frame.length = static_cast<uint32_t>(random() % 200);
      std::array<std::byte, wire::kFrameHeaderSize + wire::kDataHeaderSize> head{};
      wire::encode(frame, head.data());
      wire::DataHeader data;
      data.number = random() % 4;
      data.info.total = random() % 400;
      data.offset = random() % 400;
      wire::encode(data, head.data() + wire::kFrameHeaderSize);
      const size_t size = frame.type == wire::FrameType::kData ? head.size() : 24;
      bytes.append(reinterpret_cast<const char*>(head.data()), size);
      for (uint32_t i = 0; i < frame.length; ++i) bytes += static_cast<char>(random());
    }
    stranger.write(bytes.data(), bytes.size());
  }
  expect_well();
}

}  // namespace
}  // namespace nezha
