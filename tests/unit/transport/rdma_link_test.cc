// SPDX-License-Identifier: Apache-2.0
// Two links over in-memory RDMA, whose device works when the test tells it to.
#ifdef NEZHA_HAS_RDMA
#include <sys/socket.h>

#include <algorithm>
#include <deque>
#include <functional>
#include <list>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/unit/transport/fake_fabric.h"
#include "tests/unit/transport/rdma_end.h"
#include "transport/rdma/link.h"

namespace nezha::rdma {
namespace {

using nezha::testing::FakeFabric;
using End = nezha::testing::RdmaEnd;

class RdmaLinkTest : public ::testing::Test {
 protected:
  // This thread holds the lock of Progress whenever it does not wait.
  RdmaLinkTest() : progress_(std::move(*Progress::create())), guard_(*progress_) { make_pair(); }
  ~RdmaLinkTest() override {
    a_.link.reset();
    b_.link.reset();
    adapter_.reset();
  }

  void make_pair() {
    adapter_ = *Adapter::open(*progress_, fabric_.verbs(), FakeFabric::choice(), nullptr);
    auto a = *RdmaLink::create(*progress_, adapter_, a_.counters);
    auto b = *RdmaLink::create(*progress_, adapter_, b_.counters);
    int ends[2] = {};
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends), 0);
    const Greeting of_a = a->greeting(), of_b = b->greeting();
    EXPECT_TRUE(b->connect(of_a).ok());
    EXPECT_TRUE(a->connect(of_b).ok());
    b->adopt(net::Socket(ends[1]), true);
    a->adopt(net::Socket(ends[0]), false);
    a_.link = std::move(a);
    b_.link = std::move(b);
    b_.link->start(&b_, 0, 1);
    // This byte tells a's end of the handshake that it may start.
    char ready = 0;
    EXPECT_EQ(::recv(ends[0], &ready, 1, 0), 1);
    a_.link->start(&a_, 0, 1);
    // b sends as soon as it knows that the other end is ready.
    b_.link->send(wire::FrameType::kPing, "");
    EXPECT_TRUE(comes_true([&] { return a_.pings == 1; }));
  }
  // Whether `what` becomes true; also handles the events of descriptors.
  bool comes_true(const std::function<bool()>& what) {
    for (int i = 0; i < 10'000 && !what(); ++i) {
      Waiter waiter;
      progress_->wait(guard_, waiter, now() + kMillisecond);
      settle();
    }
    return what();
  }

  OutSegment& submit(End& from, size_t length) {
    OutSegment& segment = segments_.emplace_back();
    auto& data = contents_.emplace_back(length);
    for (auto& byte : data) byte = static_cast<std::byte>(random_());
    segment.data = data.data();
    segment.length = static_cast<uint32_t>(length);
    segment.header.info.total = length;
    segment.header.number = segments_.size();
    from.link->submit(segment);
    return segment;
  }
  // Runs until nothing happens any more.
  void settle() {
    for (bool is_busy = true; is_busy;) {
      is_busy = fabric_.step(static_cast<uint32_t>(random_()));
      is_busy = adapter_->poll() || is_busy;
      progress_->run_deferred();
    }
  }

  std::mt19937 random_{1};
  FakeFabric fabric_;
  std::unique_ptr<Progress> progress_;
  Progress::Guard guard_;
  std::shared_ptr<Adapter> adapter_;
  std::list<OutSegment> segments_;
  std::list<std::vector<std::byte>> contents_;
  End a_, b_;
};

TEST_F(RdmaLinkTest, AllArrivesInOrderShortAndLong) {
  constexpr size_t kSegments = 200;
  std::vector<std::string> said;
  for (size_t i = 0; i < kSegments; ++i) {
    submit(a_, i % 3 == 0 ? random_() % 300'000 : random_() % 20'000);
    said.push_back(std::string(random_() % wire::kMaxControlBody, static_cast<char>('a' + i % 26)));
    a_.link->send(wire::FrameType::kAbort, said.back());
    if (i % 7 == 0) settle();
  }
  settle();
  EXPECT_EQ(b_.landed, kSegments);
  EXPECT_TRUE(b_.arrived == contents_);
  EXPECT_TRUE(b_.bodies == said);
  ASSERT_EQ(a_.acked.size(), kSegments);
  size_t index = 0;
  for (const OutSegment& segment : segments_) EXPECT_EQ(a_.acked[index++], &segment);
  EXPECT_TRUE(a_.link->unacked().empty());
  EXPECT_TRUE(a_.link->has_arrived());
  EXPECT_EQ(a_.link->undelivered(), 0u);
  EXPECT_EQ(a_.counters.bytes_sent, b_.counters.bytes_received);
  EXPECT_EQ(a_.failures + b_.failures, 0);
}

TEST_F(RdmaLinkTest, BothEndsSendAtOnceAndNeitherRunsOutOfReceives) {
  for (size_t i = 0; i < 2000; ++i) {
    submit(i % 2 == 0 ? a_ : b_, random_() % 100);
    if (random_() % 50 == 0) fabric_.step(static_cast<uint32_t>(random_()));
    if (random_() % 200 == 0) adapter_->poll();
  }
  settle();
  EXPECT_EQ(a_.landed, 1000u);
  EXPECT_EQ(b_.landed, 1000u);
  EXPECT_EQ(a_.acked.size(), 1000u);
  EXPECT_EQ(b_.acked.size(), 1000u);
}

TEST_F(RdmaLinkTest, OnlyCopiedSegmentsAreWrittenAtOnce) {
  const OutSegment& shorter = submit(a_, Slots::kPayload);
  const OutSegment& longer = submit(a_, Slots::kPayload + 1);
  EXPECT_TRUE(shorter.written);
  EXPECT_FALSE(longer.written);
  settle();
  EXPECT_FALSE(longer.written);
  EXPECT_EQ(a_.acked.size(), 2u);
}

TEST_F(RdmaLinkTest, MemoryThatCannotBeRegisteredIsCopied) {
  fabric_.limit = 0;
  submit(a_, 1 << 20);
  submit(a_, 100);
  submit(b_, 70'000);
  settle();
  EXPECT_TRUE(b_.arrived.front() == contents_.front());
  EXPECT_TRUE(a_.arrived.front() == contents_.back());
  EXPECT_EQ(a_.acked.size(), 2u);
  EXPECT_EQ(b_.acked.size(), 1u);
}

// The sender's memory was registered before; then no more registrations are allowed.
TEST_F(RdmaLinkTest, APlaceThatCannotBeRegisteredIsReadByWayOfTheLinksMemory) {
  submit(a_, 1 << 20);
  submit(a_, 50'000);
  fabric_.limit = 0;
  settle();
  EXPECT_TRUE(b_.arrived == contents_);
  EXPECT_EQ(a_.acked.size(), 2u);
}

TEST_F(RdmaLinkTest, APlaceThatTheDeviceMayNotWriteToIsReadByWayOfTheLinksMemory) {
  submit(a_, 200'000);
  fabric_.refuses_writes = true;
  settle();
  EXPECT_TRUE(b_.arrived == contents_);
  EXPECT_EQ(a_.acked.size(), 1u);
  EXPECT_EQ(b_.failures, 0);
}

TEST_F(RdmaLinkTest, NothingStaysRegisteredOnceItIsAcknowledged) {
  const size_t before = fabric_.regions();
  submit(a_, 1 << 20);
  EXPECT_EQ(fabric_.regions(), before + 1);
  settle();
  EXPECT_EQ(fabric_.regions(), before);
}

TEST_F(RdmaLinkTest, ASegmentThatGoesNowhereIsNotReadAndLandsInItsTurn) {
  b_.nowhere = {1, 3};
  int reads = 0;
  fabric_.on_read = [&] { ++reads; };
  for (int i = 0; i < 4; ++i) submit(a_, 200'000);
  settle();
  EXPECT_EQ(reads, 2);
  EXPECT_EQ(b_.landed, 4u);
  EXPECT_EQ(a_.acked.size(), 4u);
}

TEST_F(RdmaLinkTest, AnAbandonedSegmentThatNobodyReadsYetGoesNowhere) {
  for (int i = 0; i < 6; ++i) submit(a_, 100'000);  // four are read at a time
  // Reads all headers first, so that the sixth segment is known and waits.
  while (b_.arrived.size() < 6) {
    ASSERT_TRUE(fabric_.step(0));
    if (b_.landed == 0) adapter_->poll();
  }
  b_.link->drop_incoming(b_.arrived.size() - b_.landed - 1);
  settle();
  EXPECT_EQ(b_.landed, 6u);
  EXPECT_EQ(b_.failures, 0);
  EXPECT_TRUE(b_.arrived.front() == contents_.front());
  EXPECT_FALSE(b_.arrived.back() == contents_.back());
}

TEST_F(RdmaLinkTest, AnAbandonedPlaceThatIsBeingReadEndsTheLinkAndIsNotWrittenTo) {
  submit(a_, 100'000);
  fabric_.on_read = [&] { b_.link->drop_incoming(0); };
  settle();
  EXPECT_EQ(b_.landed, 0u);
  EXPECT_EQ(b_.failures, 1);
  EXPECT_TRUE(std::all_of(b_.arrived.front().begin(), b_.arrived.front().end(),
                          [](std::byte byte) { return byte == std::byte{0}; }));
  EXPECT_TRUE(comes_true([&] { return a_.failures > 0; }));
  EXPECT_EQ(a_.failures, 1);
  EXPECT_TRUE(absl::IsUnavailable(a_.failure)) << a_.failure;
  EXPECT_EQ(a_.link->unacked().size(), 1u);
}

TEST_F(RdmaLinkTest, MemoryThatIsWithdrawnWhileThePeerMayReadItEndsTheLink) {
  OutSegment& copied = submit(a_, 100);
  OutSegment& lent = submit(a_, 100'000);
  a_.link->withdraw(copied);
  EXPECT_EQ(fabric_.pairs(), 2u);
  a_.link->withdraw(lent);
  EXPECT_EQ(fabric_.pairs(), 1u);  // the memory is fenced before the call returns
  EXPECT_EQ(a_.failures, 0);       // the owner is never told inside the call
  settle();
  EXPECT_EQ(a_.failures, 1);
  EXPECT_EQ(b_.landed, 0u);
}

TEST_F(RdmaLinkTest, UnannouncedMemoryMayBeWithdrawn) {
  for (uint32_t i = 0; i < Slots::kSends; ++i) submit(a_, 10);
  OutSegment& waiting = submit(a_, 100'000);
  std::vector<std::byte> copy = contents_.back();
  a_.link->withdraw(waiting);
  std::fill(contents_.back().begin(), contents_.back().end(), std::byte{0});
  waiting.data = copy.data();
  settle();
  EXPECT_EQ(a_.failures, 0);
  EXPECT_TRUE(b_.arrived.back() == copy);
}

TEST_F(RdmaLinkTest, ALinkThatIsCutFailsOnceAndKeepsWhatWasNotAcknowledged) {
  submit(a_, 100);
  settle();
  fabric_.is_cut = true;
  submit(a_, 100);
  submit(a_, 100'000);
  settle();
  EXPECT_EQ(a_.failures, 1);
  EXPECT_TRUE(absl::IsAborted(a_.failure)) << a_.failure;
  EXPECT_EQ(a_.link->unacked().size(), 2u);
}

TEST_F(RdmaLinkTest, APeersEndIsNoticedAtOnceAfterItsData) {
  submit(b_, 100);
  b_.link->send(wire::FrameType::kGoodbye, "");
  fabric_.run();
  b_.link.reset();
  EXPECT_TRUE(comes_true([&] { return a_.failures > 0; }));
  EXPECT_EQ(a_.landed, 1u);
  EXPECT_EQ(a_.bodies.size(), 1u);
  EXPECT_EQ(a_.failures, 1);
  EXPECT_TRUE(absl::IsUnavailable(a_.failure)) << a_.failure;
}

TEST_F(RdmaLinkTest, ASegmentThatBreaksTheProtocolFailsTheLink) {
  b_.refuses = true;
  submit(a_, 100);
  settle();
  EXPECT_EQ(b_.failures, 1);
  EXPECT_TRUE(absl::IsInvalidArgument(b_.failure)) << b_.failure;
}

TEST_F(RdmaLinkTest, HealthTellsWhatIsUnansweredAndWhatHasMoved) {
  submit(a_, 1000);
  EXPECT_EQ(a_.link->health().delivered, 0u);
  EXPECT_FALSE(a_.link->has_arrived());
  EXPECT_EQ(a_.link->undelivered(), 1000u);
  EXPECT_GT(a_.link->health().unanswered, 0);
  settle();
  EXPECT_EQ(a_.link->health().delivered, 1000u);
  EXPECT_EQ(a_.link->health().unanswered, 0);
  EXPECT_EQ(a_.link->health().moved, 1000u);
  EXPECT_EQ(b_.link->health().moved, 1000u);
}

// ---- A peer that breaks the protocol -----------------------------------------------------------

// A queue pair that sends arbitrary bytes for the test.
class RdmaStrangerTest : public ::testing::TestWithParam<uint32_t>, Client {
 protected:
  RdmaStrangerTest() : progress_(std::move(*Progress::create())), guard_(*progress_) {
    adapter_ = *Adapter::open(*progress_, fabric_.verbs(), FakeFabric::choice(), nullptr);
    slots_ = *Slots::create(adapter_);
    pair_ = *QueuePair::create(adapter_, {.sends = 64, .receives = 64}, this);
    for (uint32_t slot = 0; slot < Slots::kReceives; ++slot) receive(slot);
    auto link = *RdmaLink::create(*progress_, adapter_, end_.counters);
    Greeting greeting = pair_->greeting();
    greeting.slots = Slots::kReceives;
    greeting.slot_size = Slots::kSize;
    EXPECT_TRUE(pair_->connect(link->greeting()).ok());
    int ends[2] = {};
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends), 0);
    socket_ = net::Socket(ends[1]);
    EXPECT_TRUE(link->connect(greeting).ok());
    link->adopt(net::Socket(ends[0]), false);
    end_.link = std::move(link);
    end_.link->start(&end_, 0, 1);
  }
  ~RdmaStrangerTest() override {
    end_.link.reset();
    pair_.reset();
    slots_.reset();
    adapter_.reset();
  }

  void on_completion(uint32_t id, const ibv_wc& completion) override {
    if (completion.opcode == IBV_WC_RECV && completion.status == IBV_WC_SUCCESS) receive(id);
  }
  void receive(uint32_t slot) {
    EXPECT_TRUE(pair_->receive(slot, slots_->part(slots_->received(slot), Slots::kSize)).ok());
  }
  void say(const std::vector<std::byte>& message) {
    std::copy(message.begin(), message.end(), slots_->to_send(0));
    EXPECT_TRUE(pair_->send(0, slots_->part(slots_->to_send(0), message.size())).ok());
    while (fabric_.step() || adapter_->poll()) {
    }
    progress_->run_deferred();
  }
  // A message that a correct peer might send.
  std::vector<std::byte> message(Content content, wire::FrameType type, uint32_t length) {
    std::vector<std::byte> bytes(kSegmentHead + kElsewhereSize + std::min<uint32_t>(length, 1000));
    encode(Prefix{.freed = 0, .content = content}, bytes.data());
    wire::FrameHeader header;
    header.type = type;
    header.length = length;
    wire::encode(header, bytes.data() + kPrefixSize);
    wire::DataHeader data;
    data.info.total = length;
    data.number = ++number_;
    wire::encode(data, bytes.data() + kPrefixSize + wire::kFrameHeaderSize);
    return bytes;
  }

  std::mt19937 random_{GetParam()};
  FakeFabric fabric_;
  std::unique_ptr<Progress> progress_;
  Progress::Guard guard_;
  std::shared_ptr<Adapter> adapter_;
  std::unique_ptr<Slots> slots_;
  std::unique_ptr<QueuePair> pair_;
  net::Socket socket_;
  uint64_t number_ = 0;
  End end_;
};

// The sanitizers check that nothing outside the segments' places is read or written.
TEST_P(RdmaStrangerTest, ArbitraryMessagesFailTheLinkAtMost) {
  end_.acknowledges = false;
  for (int i = 0; i < 40 && end_.failures == 0; ++i) {
    const auto content = static_cast<Content>(random_() % 4);
    const auto type = random_() % 4 == 0 ? wire::FrameType::kAbort : wire::FrameType::kData;
    std::vector<std::byte> bytes = message(content, type, static_cast<uint32_t>(random_() % 3000));
    if (random_() % 2 == 0) bytes.resize(random_() % (bytes.size() + 1));
    if (!bytes.empty() && random_() % 2 == 0) {
      bytes[random_() % bytes.size()] = static_cast<std::byte>(random_());
    }
    say(bytes);
  }
  EXPECT_LE(end_.failures, 1);
  EXPECT_LE(end_.landed, end_.arrived.size());
}

// The link sends at most half of the segment at once, because the segment cannot be registered.
TEST_P(RdmaStrangerTest, ASegmentIsNotAcknowledgedBeforeAllOfItWasSent) {
  fabric_.limit = 0;
  std::vector<std::byte> contents(1 << 20);
  OutSegment segment;
  segment.data = contents.data();
  segment.length = 1 << 20;
  segment.header.info.total = 1 << 20;
  end_.link->submit(segment);
  auto bytes = message(Content::kFrame, wire::FrameType::kAck, 0);
  bytes.resize(kPrefixSize + wire::kFrameHeaderSize);
  wire::FrameHeader header;
  header.acked = 1;
  wire::encode(header, bytes.data() + kPrefixSize);
  say(bytes);
  EXPECT_TRUE(end_.acked.empty());
  EXPECT_EQ(end_.failures, 1);
  EXPECT_TRUE(absl::IsInvalidArgument(end_.failure)) << end_.failure;
}

TEST_P(RdmaStrangerTest, AnAddressThatIsNotItsOwnFailsTheLink) {
  auto bytes = message(Content::kElsewhere, wire::FrameType::kData, 50'000);
  bytes.resize(kSegmentHead + kElsewhereSize);
  encode(Elsewhere{.address = 4096, .key = static_cast<uint32_t>(random_())},
         bytes.data() + kSegmentHead);
  say(bytes);
  EXPECT_EQ(end_.failures, 1);
  EXPECT_EQ(end_.landed, 0u);
}

// The peer may send no more bytes on the connection of the handshake.
TEST_P(RdmaStrangerTest, AByteThatIsNotDueFailsTheLink) {
  const char byte = static_cast<char>(random_());
  EXPECT_EQ(::send(socket_.fd(), &byte, 1, MSG_NOSIGNAL), 1);
  for (int i = 0; i < 10'000 && end_.failures == 0; ++i) {
    Waiter tick;
    progress_->wait(guard_, tick, now() + kMillisecond);
  }
  EXPECT_EQ(end_.failures, 1);
  EXPECT_TRUE(absl::IsInvalidArgument(end_.failure)) << end_.failure;
}

INSTANTIATE_TEST_SUITE_P(Seeds, RdmaStrangerTest, ::testing::Range(1u, 41u));

// ---- Greetings ---------------------------------------------------------------------------------

TEST(RdmaGreeting, ComesBackAsItWas) {
  Greeting greeting{.pair = 77,
                    .first_packet = 0xabcdef,
                    .lid = 9,
                    .is_infiniband = true,
                    .mtu = IBV_MTU_2048,
                    .reads = 16,
                    .slots = 32,
                    .slot_size = 16512};
  greeting.gid.raw[15] = 4;
  const std::string bytes = encode(greeting);
  ASSERT_EQ(bytes.size(), kGreetingSize);
  const auto back = decode_greeting(bytes);
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ(back->pair, 77u);
  EXPECT_EQ(back->first_packet, 0xabcdefu);
  EXPECT_EQ(back->gid.raw[15], 4);
  EXPECT_EQ(back->lid, 9);
  EXPECT_TRUE(back->is_infiniband);
  EXPECT_EQ(back->mtu, IBV_MTU_2048);
  EXPECT_EQ(back->reads, 16);
  EXPECT_EQ(back->slots, 32);
  EXPECT_EQ(back->slot_size, 16512u);
}

TEST(RdmaGreeting, ComesBackFromAnIwarpDevice) {
  Greeting greeting{.is_iwarp = true, .mtu = IBV_MTU_4096, .port = 65535, .token = ~uint64_t{0}};
  const auto back = decode_greeting(encode(greeting));
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_TRUE(back->is_iwarp);
  EXPECT_FALSE(back->is_infiniband);
  EXPECT_EQ(back->port, 65535);
  EXPECT_EQ(back->token, ~uint64_t{0});
  greeting.port = 0;
  EXPECT_FALSE(decode_greeting(encode(greeting)).ok());
  greeting.port = 1;
  greeting.token = 0;
  EXPECT_FALSE(decode_greeting(encode(greeting)).ok());
}

TEST(RdmaGreeting, AnotherVersionIsRefusedByName) {
  std::string bytes = encode(Greeting{.mtu = IBV_MTU_1024});
  bytes[4] = 1;
  const auto refused = decode_greeting(bytes);
  EXPECT_TRUE(absl::IsFailedPrecondition(refused.status())) << refused.status();
  EXPECT_EQ(refused.status().message(),
            "the peer speaks version 1 of the protocol over RDMA, and this process speaks version "
            "2; install the same version of nezha on all hosts");
}

TEST(RdmaGreeting, AnythingElseIsRefused) {
  const std::string bytes = encode(Greeting{.mtu = IBV_MTU_1024});
  EXPECT_TRUE(decode_greeting(bytes).ok());
  EXPECT_FALSE(decode_greeting(bytes.substr(1)).ok());
  for (const size_t at : {size_t{0}, size_t{4}, size_t{9}, size_t{13}, size_t{33}}) {
    std::string bad = bytes;
    bad[at] = '\x7f';
    EXPECT_FALSE(decode_greeting(bad).ok()) << at;
  }
}

}  // namespace
}  // namespace nezha::rdma
#endif
