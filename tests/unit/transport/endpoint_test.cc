// SPDX-License-Identifier: Apache-2.0
// Endpoints over real sockets on loopback.
#include "transport/endpoint.h"

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/unit/transport/endpoint_fixture.h"
#include "tests/unit/transport/recording_link.h"
#include "transport/tcp/device.h"

namespace nezha {
namespace {

using testing::exchange;
using testing::Host;
using testing::kJob;
using testing::Listener;
using testing::Transfer;

TEST(Endpoint, TransfersBothWaysBeyondTheSocketsBuffers) {
  Host one, two;
  exchange(one, two, 1, 64 << 20);
  exchange(one, two, 2, 5);
  exchange(one, two, 3, 3'000'001);
  for (Host* host : {&one, &two}) {
    Progress::Guard guard(host->endpoint->progress());
    uint64_t received = 0;
    for (const Rail rail : {0, 1}) {
      const RailCounters& counters = host->endpoint->device(rail)->counters();
      EXPECT_EQ(counters.failures, 0u);
      EXPECT_EQ(counters.segments_resent, 0u);
      EXPECT_GT(counters.bytes_sent, 0u) << "rail " << rail << " carries nothing";
      received += counters.bytes_received;
    }
    EXPECT_EQ(received, (64u << 20) + 5 + 3'000'001);
  }
}

// The endpoint combines short frames before it writes them.
TEST(Endpoint, TransfersOfAnySmallSize) {
  Host one, two;
  for (uint64_t bytes = 1; bytes <= 4 << 10; bytes += 17) exchange(one, two, bytes, bytes);
}

TEST(Endpoint, RailsMayHaveOtherNamesAtThePeer) {
  Host one({"a", "b"}), two({"b", "c"});
  one.peer_names = {{"a", "b"}, {"b", "c"}};
  two.peer_names = {{"b", "a"}, {"c", "b"}};
  exchange(one, two, 1, 4 << 20);
  for (Host* host : {&one, &two}) {
    Progress::Guard guard(host->endpoint->progress());
    for (const Rail rail : {0, 1}) {
      const RailCounters& counters = host->endpoint->device(rail)->counters();
      EXPECT_EQ(counters.failures, 0u);
      EXPECT_GT(counters.bytes_sent, 0u) << "rail " << rail << " carries nothing";
      EXPECT_GT(counters.bytes_received, 0u) << "rail " << rail << " carries nothing";
    }
  }
}

// Both sides connect on both rails at once; of each pair of crossing connections one is kept.
TEST(Endpoint, SimultaneousConnectionsLeaveOneLinkForEachRail) {
  for (uint64_t round = 0; round < 60; ++round) {
    Host one, two;
    exchange(one, two, round, 1000 + (round % 2) * 100'000);
    for (Host* host : {&one, &two}) {
      Progress::Guard guard(host->endpoint->progress());
      for (const Rail rail : {0, 1}) {
        EXPECT_EQ(host->endpoint->device(rail)->counters().failures, 0u);
      }
    }
    if (HasFailure()) return;
  }
}

// Nobody listens at one of the addresses; another process listens at the other.
TEST(Endpoint, ConnectingToNobodyFailsTheChannel) {
  Host one, other;
  std::map<std::string, std::string> nowhere;
  UniqueId nobody;
  {
    Host gone;
    nowhere = gone.addresses;
    nowhere["b"] = other.addresses["b"];
    nobody = gone.endpoint->process();
  }
  Progress& progress = one.endpoint->progress();
  Transfer transfer(progress);
  Progress::Guard guard(progress);
  Channel& channel = one.endpoint->channel(nobody);
  channel.set_peer("rank 7", kJob, nowhere);
  transfer.send(channel, 1, 100, 1);
  ASSERT_TRUE(progress.wait(guard, transfer.waiter, now() + 60 * kSecond));
  EXPECT_TRUE(absl::IsUnavailable(transfer.failure)) << transfer.failure;
  for (const char* words : {"rank 7", "a: connecting to ", "an address of host ",
                            "Connection refused", "b: another process answers at "}) {
    EXPECT_NE(transfer.failure.message().find(words), absl::string_view::npos) << transfer.failure;
  }
  EXPECT_TRUE(channel.failed());
}

TEST(Endpoint, AbortsReachTheContextTheyAreFor) {
  Host one, two;
  exchange(one, two, 1, 10);
  {
    Progress::Guard guard(one.endpoint->progress());
    one.endpoint->broadcast_abort({kJob, 3, {}, "it broke"});
    one.endpoint->broadcast_abort({UniqueId{9, 9}, 4, {}, "not yours"});
  }
  exchange(one, two, 2, 10);
  const std::vector<wire::Abort> aborts = two.wait_for_abort();
  ASSERT_FALSE(aborts.empty());
  for (const wire::Abort& abort : aborts) {
    EXPECT_EQ(abort.rank, 3u);
    EXPECT_EQ(abort.reason, "it broke");
  }
}

// The abort arrives although the sockets are full of data that nobody will read.
TEST(Endpoint, WhyAContextBrokeArrivesThoughItsProcessEnds) {
  constexpr size_t kBytes = 64 << 20;
  Host two;
  auto one = std::make_unique<Host>();
  exchange(*one, two, 1, 10);
  std::thread end;
  {
    // While this is held, `two` reads nothing.
    Progress::Guard busy(two.endpoint->progress());
    Transfer ours(one->endpoint->progress());
    {
      Progress::Guard guard(one->endpoint->progress());
      Channel& channel = one->channel_to(two);
      ours.send(channel, 2, kBytes, 1);
      Waiter tick;
      one->endpoint->progress().wait(guard, tick, now() + 20 * kMillisecond);
      channel.abandon(*ours.message);
      one->endpoint->broadcast_abort({kJob, 3, {}, "it broke"});
    }
    end = std::thread([&] { one.reset(); });
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
  EXPECT_FALSE(two.wait_for_abort().empty());
  end.join();
}

TEST(Endpoint, WhoConnectsToABrokenContextIsTold) {
  Host one, two;
  {
    Progress::Guard guard(one.endpoint->progress());
    one.endpoint->broadcast_abort({kJob, 3, {}, "it broke"});
  }
  exchange(one, two, 1, 10);
  const std::vector<wire::Abort> aborts = two.wait_for_abort();
  ASSERT_FALSE(aborts.empty());
  EXPECT_EQ(aborts[0].reason, "it broke");
}

TEST(Endpoint, WhoConnectsForAClosedContextFails) {
  Host one, two;
  {
    Progress::Guard guard(one.endpoint->progress());
    one.endpoint->leave(kJob, &one.listener);
  }
  Progress& progress = two.endpoint->progress();
  Transfer transfer(progress);
  Progress::Guard guard(progress);
  Channel& channel = two.channel_to(one);
  transfer.receive(channel, 1, 100);
  transfer.send(channel, 1, 100, 1);
  ASSERT_TRUE(progress.wait(guard, transfer.waiter, now() + 60 * kSecond));
  EXPECT_TRUE(absl::IsUnavailable(transfer.failure)) << transfer.failure;
  EXPECT_NE(transfer.failure.message().find("closed its context"), absl::string_view::npos)
      << transfer.failure;
}

TEST(Endpoint, AContextThatIsClosedLeavesTheNextOneUsable) {
  constexpr UniqueId kNext{33, 44};
  Host one, two;
  {
    Progress::Guard guard(one.endpoint->progress());
    one.endpoint->leave(kJob, &one.listener);
  }
  Progress& progress = two.endpoint->progress();
  {
    Transfer refused(progress);
    Progress::Guard guard(progress);
    refused.receive(two.channel_to(one), 1, 100);
    ASSERT_TRUE(progress.wait(guard, refused.waiter, now() + 60 * kSecond));
    EXPECT_TRUE(absl::IsUnavailable(refused.failure)) << refused.failure;
  }
  for (Host* host : {&one, &two}) {
    Progress::Guard guard(host->endpoint->progress());
    EXPECT_TRUE(host->endpoint->join(kNext, &host->listener).ok());
  }
  Transfer transfer(progress);
  Progress::Guard guard(progress);
  transfer.send(two.channel_to(one, kNext), 2, 100, 1);
  ASSERT_TRUE(progress.wait(guard, transfer.waiter, now() + 60 * kSecond));
  EXPECT_TRUE(transfer.failure.ok()) << transfer.failure;
}

TEST(Endpoint, WhoWaitsForOneThatLeavesTheContextIsTold) {
  Host one, two;
  exchange(one, two, 1, 10);
  Progress& progress = two.endpoint->progress();
  Transfer transfer(progress);
  Progress::Guard guard(progress);
  transfer.receive(two.channel_to(one), 2, 100);
  {
    Progress::Guard other(one.endpoint->progress());
    one.endpoint->leave(kJob, &one.listener);
    one.endpoint->progress().run_deferred();
  }
  ASSERT_TRUE(progress.wait(guard, transfer.waiter, now() + 60 * kSecond));
  EXPECT_NE(transfer.failure.message().find("has left"), absl::string_view::npos)
      << transfer.failure;
}

// ---- Contexts of two processes that are connected already ---------------------------------------

constexpr UniqueId kNext{33, 44};

// Both processes join the context; neither has named it to the other yet.
void enter_next(Host& one, Host& two) {
  for (Host* host : {&one, &two}) {
    Progress::Guard guard(host->endpoint->progress());
    EXPECT_TRUE(host->endpoint->join(kNext, &host->listener).ok());
  }
}

void speak_of_next(Host& from, const Host& to) {
  Progress::Guard guard(from.endpoint->progress());
  from.channel_to(to, kNext);
}

void break_next(Host& host) {
  Progress::Guard guard(host.endpoint->progress());
  host.endpoint->broadcast_abort({kNext, 3, {}, "it broke"});
}

void leave_next(Host& host) {
  Progress::Guard guard(host.endpoint->progress());
  host.endpoint->leave(kNext, &host.listener);
  host.endpoint->progress().run_deferred();
}

void expect_abort_of_next(Host& host) {
  const std::vector<wire::Abort> aborts = host.wait_for_abort();
  ASSERT_FALSE(aborts.empty());
  EXPECT_EQ(aborts[0].context, kNext);
  EXPECT_EQ(aborts[0].reason, "it broke");
}

TEST(Endpoint, AProcessThatEnteredAContextHearsThatItBreaks) {
  Host one, two;
  exchange(one, two, 1, 10);
  enter_next(one, two);
  speak_of_next(two, one);
  exchange(one, two, 2, 10);  // so frames that were sent before have arrived
  break_next(one);
  expect_abort_of_next(two);
}

TEST(Endpoint, AProcessThatEntersAContextHearsThatItHasBroken) {
  Host one, two;
  exchange(one, two, 1, 10);
  enter_next(one, two);
  break_next(one);
  speak_of_next(two, one);
  expect_abort_of_next(two);
}

TEST(Endpoint, AProcessThatEntersAClosedContextHearsThatItHasBroken) {
  Host one, two;
  exchange(one, two, 1, 10);
  enter_next(one, two);
  break_next(one);
  leave_next(one);
  speak_of_next(two, one);
  expect_abort_of_next(two);
}

// The hello of the connection names only one of the contexts.
TEST(Endpoint, AConnectingProcessHearsOfEachBrokenContext) {
  Host one, two;
  enter_next(one, two);
  {
    Progress::Guard guard(two.endpoint->progress());
    two.channel_to(one);
    two.channel_to(one, kNext);
  }
  break_next(one);
  exchange(one, two, 1, 10);
  expect_abort_of_next(two);
}

TEST(Endpoint, WhoConnectsToAClosedContextHearsThatItHasBroken) {
  Host one, two;
  enter_next(one, two);
  break_next(one);
  leave_next(one);
  Transfer transfer(two.endpoint->progress());
  {
    Progress::Guard guard(two.endpoint->progress());
    transfer.receive(two.channel_to(one, kNext), 1, 100, kNext);
  }
  expect_abort_of_next(two);
  Progress::Guard guard(two.endpoint->progress());
  if (transfer.ticket != nullptr) two.channel_to(one, kNext).cancel(transfer.ticket);
}

TEST(Endpoint, AProcessThatEntersAClosedContextIsToldThatItsPeerHasLeft) {
  Host one, two;
  exchange(one, two, 1, 10);
  enter_next(one, two);
  leave_next(one);  // the other process is not told
  Progress& progress = two.endpoint->progress();
  Transfer transfer(progress);
  Progress::Guard guard(progress);
  transfer.receive(two.channel_to(one, kNext), 2, 100, kNext);
  ASSERT_TRUE(progress.wait(guard, transfer.waiter, now() + 60 * nezha::kSecond));
  EXPECT_NE(transfer.failure.message().find("closed its context"), absl::string_view::npos)
      << transfer.failure;
}

// A channel serves all contexts of its two processes. After the context that was joined last is
// left, a link that dies is made again for the others.
TEST(Endpoint, ALinkComesBackWhileAnyContextIsShared) {
  constexpr UniqueId kSecond{33, 44};
  Host one({"a"}), two({"a"});
  exchange(one, two, 1, 10);
  for (Host* host : {&one, &two}) {
    Progress::Guard guard(host->endpoint->progress());
    EXPECT_TRUE(host->endpoint->join(kSecond, &host->listener).ok());
    host->channel_to(host == &one ? two : one, kSecond);
  }
  for (Host* host : {&one, &two}) {
    Progress::Guard guard(host->endpoint->progress());
    host->endpoint->leave(kSecond, &host->listener);
  }
  {
    // To `one` it looks as if the cable was unplugged for a moment.
    Progress::Guard guard(one.endpoint->progress());
    Channel& channel = one.endpoint->channel(two.endpoint->process());
    channel.on_carrier(0, false);
    channel.on_carrier(0, true);
  }
  // Like exchange(), but nobody names a context again.
  for (Host* host : {&one, &two}) {
    Host& peer = host == &one ? two : one;
    Progress::Guard guard(host->endpoint->progress());
    Channel& channel = host->endpoint->channel(peer.endpoint->process());
    Transfer transfer(host->endpoint->progress());
    transfer.send(channel, 2, 1 << 10, 1);
    EXPECT_TRUE(
        host->endpoint->progress().wait(guard, transfer.waiter, now() + 30 * nezha::kSecond));
    EXPECT_TRUE(transfer.failure.ok()) << transfer.failure;
  }
}

// A device on which only the test makes connections.
struct SlowDevice final : Device {
  SlowDevice(Rail rail, Acceptor& its_acceptor) : Device("a", rail), acceptor(its_acceptor) {}
  std::unique_ptr<Attempt> connect(absl::string_view, const wire::Hello&, Connected) override {
    return nullptr;
  }
  std::string address() const override { return "slow"; }
  bool carrier() const override { return true; }
  Acceptor& acceptor;
};

struct CountedLink final : testing::RecordingLink {
  explicit CountedLink(int& links) : count(links) { ++count; }
  ~CountedLink() override { --count; }
  int& count;
};

// Making the link may have taken seconds.
TEST(Endpoint, AConnectionThatWasAcceptedIsKeptOnlyIfItIsWantedOnceItHasALink) {
  Listener listener;
  int links = 0;  // outlives the endpoint, whose links count themselves
  const auto endpoint = *Endpoint::create();
  Progress::Guard guard(endpoint->progress());
  ASSERT_TRUE(endpoint
                  ->open_device("slow:",
                                [](Progress&, Acceptor& acceptor, Rail rail) {
                                  return std::make_unique<SlowDevice>(rail, acceptor);
                                })
                  .ok());
  ASSERT_TRUE(endpoint->join(kJob, &listener).ok());
  Acceptor& acceptor = static_cast<SlowDevice*>(endpoint->device(0))->acceptor;
  wire::Hello hello{.job = kJob,
                    .source = {3, 4},
                    .target = endpoint->process(),
                    .link_id = 1,
                    .generation = 1,
                    .rail = "a"};
  const auto accept = [&] { return acceptor.on_hello(0, hello).code; };
  EXPECT_EQ(accept(), wire::WelcomeCode::kAccepted);
  EXPECT_EQ(accept(), wire::WelcomeCode::kAccepted) << "neither connection has a link yet";
  acceptor.on_accepted(0, hello, std::make_unique<CountedLink>(links));
  EXPECT_EQ(links, 1);
  const Channel& channel = endpoint->channel(hello.source);
  const uint64_t first = hello.link_id++;
  acceptor.on_accepted(0, hello, std::make_unique<CountedLink>(links));
  EXPECT_EQ(links, 1) << "the second link does not replace one of the same generation: " << first;
  EXPECT_EQ(channel.up(), rail_bit(0));

  hello.generation = 2;
  hello.job = {33, 44};
  ASSERT_TRUE(endpoint->join(hello.job, &listener).ok());
  EXPECT_EQ(accept(), wire::WelcomeCode::kAccepted);
  endpoint->leave(hello.job, &listener);
  acceptor.on_accepted(0, hello, std::make_unique<CountedLink>(links));
  EXPECT_EQ(links, 1);
  EXPECT_FALSE(channel.is_in(hello.job)) << "it was for a context that is closed";
}

TEST(Endpoint, AContextHasOneRankInAProcess) {
  Host host({"a"});
  Listener second;
  Progress::Guard guard(host.endpoint->progress());
  EXPECT_TRUE(absl::IsAlreadyExists(host.endpoint->join(kJob, &second)));
  host.endpoint->leave(kJob, &second);
  EXPECT_TRUE(absl::IsAlreadyExists(host.endpoint->join(kJob, &second)));
  host.endpoint->leave(kJob, &host.listener);
  EXPECT_TRUE(host.endpoint->join(kJob, &second).ok());
}

TEST(Endpoint, DevicesAreSharedAndRailsHaveOneDeviceEach) {
  Host host({"a"});
  Progress::Guard guard(host.endpoint->progress());
  const auto never = [](Progress&, Acceptor&, Rail) -> absl::StatusOr<std::unique_ptr<Device>> {
    return absl::InternalError("not to be called");
  };
  const auto again = host.endpoint->open_device("tcp:lo?rail=a", never);
  ASSERT_TRUE(again.ok());
  EXPECT_EQ(*again, 0);
  const auto second = [](Progress& progress, Acceptor& acceptor,
                         Rail rail) -> absl::StatusOr<std::unique_ptr<Device>> {
    tcp::DeviceOptions options;
    options.interface = "lo";
    options.rail = "a";
    auto device = tcp::TcpDevice::create(progress, acceptor, rail, options);
    if (!device.ok()) return device.status();
    return std::unique_ptr<Device>(*std::move(device));
  };
  EXPECT_TRUE(absl::IsInvalidArgument(
      host.endpoint->open_device("tcp:lo?rail=a&family=4", second).status()));
}

}  // namespace
}  // namespace nezha
