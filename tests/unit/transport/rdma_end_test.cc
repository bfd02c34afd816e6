// SPDX-License-Identifier: Apache-2.0
// RDMA connections while they are made: queue pairs that take long to connect, and peers that do
// not follow the handshake.
#ifdef NEZHA_HAS_RDMA
#include <netinet/in.h>
#include <sys/socket.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <future>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tests/unit/transport/rdma_sides.h"
#include "tests/unit/transport/stranger.h"
#include "transport/rdma/greeting.h"
#include "transport/rdma/slots.h"

namespace nezha::rdma {
namespace {

using testing::Stranger;

// The numbers of the first connection's queue pairs.
constexpr uint32_t kConnecting = 1;
constexpr uint32_t kAccepting = 2;

// Makes queue pairs wait before they are connected.
class Gate {
 public:
  explicit Gate(std::set<uint32_t> held) : held_(std::move(held)) {}
  void pass(uint32_t number) {
    if (!held_.contains(number)) return;
    ++waiting;
    is_late = is_late || opened_.wait_for(std::chrono::seconds(100)) != std::future_status::ready;
  }
  void open() { end_.set_value(); }

  std::atomic<int> waiting = 0;
  std::atomic<bool> is_late = false;

 private:
  const std::set<uint32_t> held_;
  std::promise<void> end_;
  const std::shared_future<void> opened_ = end_.get_future().share();
};

class RdmaConnectingTest : public testing::RdmaSides {
 protected:
  std::shared_ptr<Gate> hold(std::set<uint32_t> numbers) {
    auto gate = std::make_shared<Gate>(std::move(numbers));
    fabric_.on_connect = [gate](uint32_t number) {
      gate->pass(number);
      return 0;
    };
    return gate;
  }
  // Handles everything that has arrived.
  void settle() {
    for (int i = 0; i < 200; ++i) drive();
  }
};

TEST_F(RdmaConnectingTest, AQueuePairThatTakesLongToConnectHoldsNobodyUp) {
  ASSERT_EQ(connect(), absl::OkStatus());
  const auto gate = hold({kConnecting + 2, kAccepting + 2});
  const auto second = begin(far_.device->address());
  ASSERT_TRUE(until([&] { return gate->waiting == 2; }));
  expect_carries();
  bool has_rung = false;
  Alarm alarm(*progress_, [&] { has_rung = true; });
  alarm.start(now());
  EXPECT_TRUE(until([&] { return has_rung; }));
  EXPECT_FALSE(second->outcome.has_value());
  gate->open();
  EXPECT_EQ(end(*second), absl::OkStatus());
  expect_carries();
  EXPECT_FALSE(gate->is_late) << "the connection delayed everything else";
}

TEST_F(RdmaConnectingTest, NoEndIsUpBeforeBothCanReceive) {
  for (const uint32_t late : {kConnecting, kAccepting + 2}) {
    near_.end.reset();
    far_.end.reset();
    const auto gate = hold({late});
    const auto attempt = begin(far_.device->address());
    ASSERT_TRUE(until([&] { return gate->waiting == 1; }));
    settle();
    EXPECT_FALSE(attempt->outcome.has_value());
    EXPECT_EQ(far_.end, nullptr);
    gate->open();
    EXPECT_EQ(end(*attempt), absl::OkStatus());
    expect_carries();
  }
}

// A queue pair cannot be destroyed while it is being connected, so this happens afterwards.
TEST_F(RdmaConnectingTest, AQueuePairThatIsGivenUpMeanwhileIsDestroyedAfterwards) {
  const auto gate = hold({kConnecting, kAccepting});
  auto attempt = begin(far_.device->address());
  ASSERT_TRUE(until([&] { return gate->waiting == 2; }));
  attempt.reset();
  settle();
  EXPECT_EQ(fabric_.pairs(), 2u);
  gate->open();
  EXPECT_TRUE(until([&] { return fabric_.pairs() == 0; }));
  EXPECT_EQ(far_.end, nullptr);
  EXPECT_EQ(log_.take(), std::vector<std::string>())
      << "an end that gives up has no reason to warn";
}

TEST_F(RdmaConnectingTest, AWaitingEndGivesUpAtOnceWithItsPeer) {
  const auto gate = hold({kConnecting});
  auto attempt = begin(far_.device->address());
  ASSERT_TRUE(until([&] { return gate->waiting == 1; }));
  settle();
  attempt.reset();
  EXPECT_TRUE(until([&] { return fabric_.pairs() == 1; }));
  EXPECT_EQ(log_.take(), std::vector<std::string>());
  gate->open();
  EXPECT_TRUE(until([&] { return fabric_.pairs() == 0; }));
}

TEST_F(RdmaConnectingTest, ADeviceThatGoesMeanwhileIsLetGo) {
  const auto gate = hold({kConnecting});
  auto attempt = begin(far_.device->address());
  ASSERT_TRUE(until([&] { return gate->waiting == 1; }));
  settle();
  fabric_.take_away(IBV_EVENT_PORT_ERR);
  EXPECT_TRUE(until([&] { return near_.is_down() && far_.is_down(); }));
  EXPECT_TRUE(until([&] { return fabric_.pairs() == 1; }))
      << "the accepting end gives up by itself";
  attempt.reset();  // as channels do in this case
  gate->open();
  EXPECT_TRUE(until([&] { return fabric_.contexts() == 0; }));
}

TEST_F(RdmaConnectingTest, AQueuePairThatFailsBeforeTheLinkIsUpIsNoLink) {
  const auto gate = hold({kConnecting});
  const auto attempt = begin(far_.device->address());
  ASSERT_TRUE(until([&] { return gate->waiting == 1; }));
  fabric_.fail_pair(kConnecting);
  settle();
  gate->open();
  EXPECT_EQ(end(*attempt), absl::AbortedError("fake0: the queue pair failed in the handshake"));
  EXPECT_EQ(far_.end, nullptr);
}

// The fabric checks that everything has been given back by then.
TEST_F(RdmaConnectingTest, TheProcessEndsOnceNoThreadIsAtWorkForIt) {
  const auto gate = hold({kConnecting, kAccepting});
  auto attempt = begin(far_.device->address());
  ASSERT_TRUE(until([&] { return gate->waiting == 2; }));
  attempt.reset();
  near_.device.reset();
  far_.device.reset();
  gate->open();  // this thread holds the lock until its Progress ends
}

TEST_F(RdmaConnectingTest, BothEndsSayWhyTheirQueuePairCannotBeConnected) {
  uint32_t failing = kConnecting;
  fabric_.on_connect = [&](uint32_t number) { return number == failing ? ETIMEDOUT : 0; };
  const std::string why = "fake0: preparing a queue pair to receive: Connection timed out";
  EXPECT_EQ(connect(), absl::AbortedError(why));
  EXPECT_TRUE(until([&] { return fabric_.pairs() == 0; }));
  EXPECT_EQ(log_.take(), std::vector<std::string>());
  failing = kAccepting + 2;
  EXPECT_EQ(connect(), absl::AbortedError("the peer closed the connection in the handshake"));
  // A thread that still connects asks `failing`.
  EXPECT_TRUE(until([&] { return fabric_.pairs() == 0; }));
  const auto told = log_.take("no link came of it");
  ASSERT_EQ(told.size(), 1u);
  EXPECT_TRUE(absl::StrContains(told[0], why)) << told[0];
  EXPECT_EQ(far_.end, nullptr);
}

TEST_F(RdmaConnectingTest, ItTakesFiveSecondsAtMost) {
  const auto gate = hold({kAccepting});
  const auto attempt = begin(far_.device->address());
  ASSERT_TRUE(until([&] { return gate->waiting == 1; }));
  settle();
  clock_.advance(5 * kSecond);
  EXPECT_EQ(end(*attempt), absl::AbortedError("fake0: no RDMA connection came about within 5 s"));
  attempt->attempt.reset();
  gate->open();
  EXPECT_TRUE(until([&] { return fabric_.pairs() == 0; }));
}

// ---- Peers that are not correct ones -----------------------------------------------------------

constexpr size_t kByRdma = sizeof "rdma:" - 1;  // in the address of a device

std::string greeting() {
  return encode({.pair = 77,
                 .mtu = IBV_MTU_1024,
                 .reads = 4,
                 .slots = Slots::kReceives,
                 .slot_size = Slots::kSize});
}

template <typename Bytes>
std::string text_of(const Bytes& bytes) {
  return std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
}

class RdmaStrangersTest : public RdmaConnectingTest {
 protected:
  // A client that has connected and sent its greeting.
  std::unique_ptr<Stranger> connecting(const std::string& greeting) {
    auto stranger = std::make_unique<Stranger>(far_.device->address().substr(kByRdma));
    wire::Hello hello;
    hello.rail = "r";
    say(*stranger, text_of(wire::encode(hello)) + greeting);
    settle();
    EXPECT_EQ(stranger->welcome()->code, wire::WelcomeCode::kAccepted);
    EXPECT_EQ(stranger->read(kGreetingSize).size(), kGreetingSize);
    return stranger;
  }
  static void say(Stranger& stranger, const std::string& text) {
    stranger.write(text.data(), text.size());
  }
};

TEST_F(RdmaStrangersTest, OneThatSaysThatItIsReadyIsAPeer) {
  const auto stranger = connecting(greeting());
  say(*stranger, "\1");
  EXPECT_TRUE(until([&] { return far_.end != nullptr; }));
  EXPECT_EQ(stranger->read(1), "\1");
}

TEST_F(RdmaStrangersTest, AnythingElseIsRefused) {
  for (const char* said : {"\2", "x"}) {
    const auto stranger = connecting(greeting());
    say(*stranger, said);
    settle();
    EXPECT_TRUE(stranger->is_closed());
  }
  {
    const auto gate = hold({kAccepting + 1});
    const auto stranger = connecting(greeting());
    say(*stranger, "\1\1");  // the second byte is due only when the link is up
    settle();
    EXPECT_TRUE(stranger->is_closed());
    gate->open();
  }
  EXPECT_EQ(far_.end, nullptr);
  EXPECT_TRUE(until([&] { return fabric_.pairs() == 0; }));
  const auto told = log_.take("no link came of it");
  ASSERT_EQ(told.size(), 1u) << "one reason is told once";
  EXPECT_TRUE(absl::StrContains(told[0], "said in the handshake what no correct peer says"));
}

TEST_F(RdmaStrangersTest, OneThatIsNeverReadyIsGivenUp) {
  const auto silent = connecting(greeting());
  { const auto gone = connecting(greeting()); }
  EXPECT_TRUE(until([&] { return fabric_.pairs() == 1; }));
  EXPECT_EQ(log_.take(), std::vector<std::string>());
  clock_.advance(6 * kSecond);
  settle();
  EXPECT_TRUE(silent->is_closed());
  EXPECT_TRUE(until([&] { return fabric_.pairs() == 0; }));
}

TEST_F(RdmaStrangersTest, AnEarlierVersionIsRefusedByName) {
  std::string earlier = greeting();
  earlier[4] = 1;
  const auto stranger = connecting(earlier);
  EXPECT_TRUE(stranger->is_closed());
  const auto told = log_.take("no link came of it");
  ASSERT_EQ(told.size(), 1u);
  EXPECT_TRUE(absl::StrContains(
      told[0],
      "the peer speaks version 1 of the protocol over RDMA, and this process speaks version 2; "))
      << told[0];
}

TEST_F(RdmaStrangersTest, AnAcceptingEndIsNotReadyBeforeItHasHeardThatTheOtherIs) {
  const net::Socket listener(socket(AF_INET, SOCK_STREAM, 0));
  net::Address any = *net::Address::parse_host("127.0.0.1");
  ASSERT_EQ(bind(listener.fd(), any.sockaddr_ptr(), any.length()), 0);
  ASSERT_EQ(listen(listener.fd(), 4), 0);
  const auto gate = hold({kConnecting});
  const auto attempt = begin(absl::StrCat("rdma:", net::local_address(listener.fd())->str()));
  settle();
  Stranger stranger(accept(listener.fd(), nullptr, nullptr));
  stranger.read(wire::kHelloSize + kGreetingSize);
  say(stranger, text_of(wire::encode(wire::Welcome{})) + greeting() + "\1");
  EXPECT_EQ(end(*attempt),
            absl::AbortedError("the peer said in the handshake what no correct peer says"));
  attempt->attempt.reset();
  gate->open();
  EXPECT_TRUE(until([&] { return fabric_.pairs() == 0; }));
}

}  // namespace
}  // namespace nezha::rdma
#endif
