// What random traffic (channel_traffic_test.cc) meets too rarely, one by one.
#include "transport/channel.h"

#include <algorithm>
#include <bit>
#include <memory>
#include <vector>

#include "gtest/gtest.h"
#include "tests/unit/transport/channel_fixture.h"
#include "tests/unit/transport/fake_link.h"

namespace nezha {
namespace {

using testing::ChannelTest;
using testing::FakeConnection;
using testing::FakeNetwork;
using testing::TestReceiver;
using testing::TestSender;

constexpr size_t kLarge = wire::kInitialCredit + (64 << 10);

class ChannelScript : public ChannelTest {
 protected:
  // Two sides joined by links on all of their rails.
  void connect(int rails, std::vector<Nanos> burst_takes = {}) {
    network_ = std::make_unique<FakeNetwork>(*progress_, 1, rails);
    network_->burst_takes = std::move(burst_takes);
    auto& first = send(0, 90, 1);
    auto& answer = receive(1, 90, 1);
    network_->settle_down();
    ASSERT_TRUE(first.is_settled);
    ASSERT_TRUE(answer.complete);
    for (const int side : {0, 1}) ASSERT_EQ(std::popcount(channel(side).up()), rails);
  }
  // And all is acknowledged: no side has anything to wait for.
  void connect_and_rest() {
    connect(2);
    pass(200 * kMillisecond);
  }
  ~ChannelScript() override { network_.reset(); }

  Channel& channel(int side) { return network_->channel(side); }
  uint64_t failures(int side) {
    uint64_t sum = 0;
    for (const auto& device : network_->side(side).devices) sum += device->counters().failures;
    return sum;
  }
  static wire::MessageInfo info(uint64_t tag, uint64_t total) {
    wire::MessageInfo result;
    result.context = FakeNetwork::kJob.low;
    result.tag = tag;
    result.total = total;
    return result;
  }
  // All of a message at once.
  TestSender& send(int side, uint64_t tag, size_t bytes) {
    TestSender& sender = *senders_.emplace_back(std::make_unique<TestSender>(tag, bytes));
    sender.message = channel(side).open(info(tag, bytes), Route(), &sender);
    channel(side).push(*sender.message, 0, sender.memory.data(), bytes);
    sender.settling = true;
    channel(side).settle(*sender.message);
    return sender;
  }
  TestReceiver& receive(int side, uint64_t tag, size_t bytes) {
    TestReceiver& receiver =
        *receivers_.emplace_back(std::make_unique<TestReceiver>(tag, info(tag, bytes)));
    Inbox::Ticket* ticket = channel(side).post(receiver.info, &receiver);
    if (!receiver.over()) receiver.ticket = ticket;
    return receiver;
  }
  // Breaks all connections; nothing that is under way arrives.
  void cut_all(bool silent = false) {
    for (const auto& connection : network_->connections()) {
      network_->break_connection(*connection, silent);
      for (auto& end : connection->ends) end.readable = 0;
    }
  }
  // The part of a message from side 0 that goes by rail 1.
  double share_of_1(uint64_t tag) {
    const auto submitted = [&](Rail rail) {
      return static_cast<double>(network_->connection(rail)->ends[0].submitted);
    };
    const double before[] = {submitted(0), submitted(1)};
    receive(1, tag, 256 << 10);
    send(0, tag, 256 << 10);
    network_->settle_down();
    const double more[] = {submitted(0) - before[0], submitted(1) - before[1]};
    return more[1] / (more[0] + more[1]);
  }
  int burst_frames(Rail rail) { return network_->connection(rail)->ends[0].burst_frames; }
  // The rail by which side 0 sends a short message.
  Rail rail_of_short(uint64_t tag) {
    const uint64_t before = network_->connection(1)->ends[0].submitted;
    receive(1, tag, 1000);
    send(0, tag, 1000);
    network_->settle_down();
    return network_->connection(1)->ends[0].submitted == before ? 0 : 1;
  }
  // One in twenty of the packets that side 0 sends by that rail, for a while.
  void lose_much(Rail rail) {
    Link::Packets& packets = network_->connection(rail)->ends[0].packets;
    for (int i = 0; i < 2; ++i) {
      packets.sent += 1000;
      packets.lost += 50;
      pass(50 * kMillisecond);
    }
  }
  // A message that comes by a grant or not at all: another one, which nobody receives, has taken
  // the credit.
  TestSender& send_beyond_credit() {
    send(0, 80, wire::kInitialCredit);
    TestSender& sender = send(0, 1, kLarge);
    network_->settle_down();
    return sender;
  }
  void pass(Nanos time) {
    for (const Nanos end = now() + time; now() < end;) {
      network_->settle_down();
      clock_.advance(5 * kMillisecond);
      run_timers();
    }
    network_->settle_down();
  }

  std::vector<std::unique_ptr<TestSender>> senders_;
  std::vector<std::unique_ptr<TestReceiver>> receivers_;
  std::unique_ptr<FakeNetwork> network_;
};

TEST_F(ChannelScript, AGrantThatIsLostWithItsLinkIsSentAgain) {
  connect(2);
  TestSender& sender = send_beyond_credit();
  TestReceiver& receiver = receive(1, 1, kLarge);  // grants
  cut_all();
  pass(kSecond);
  EXPECT_TRUE(receiver.complete);
  EXPECT_TRUE(sender.is_settled);
}

TEST_F(ChannelScript, AGrantThatIsLostWithItsLinkGoesByTheOneThatIsLeft) {
  for (const Rail dead : {0, 1}) {
    connect(2);
    TestSender& sender = send_beyond_credit();
    TestReceiver& receiver = receive(1, 1, kLarge);  // grants
    network_->allow = [](int, Rail) { return false; };
    FakeConnection* connection = network_->connection(dead);
    ASSERT_NE(connection, nullptr);
    network_->break_connection(*connection, /*silent=*/false);
    for (auto& end : connection->ends) end.readable = 0;
    pass(kSecond);
    EXPECT_TRUE(receiver.complete);
    EXPECT_TRUE(sender.is_settled);
    network_.reset();
  }
}

TEST_F(ChannelScript, AGrantThatFindsNoLinkIsSentWhenThereIsOne) {
  connect(1);
  TestSender& sender = send_beyond_credit();
  cut_all();
  network_->allow = [](int, Rail) { return false; };
  pass(kSecond / 2);
  ASSERT_EQ(channel(1).up(), 0u);
  TestReceiver& receiver = receive(1, 1, kLarge);
  network_->allow = [](int side, Rail) { return side == 0; };  // no two that cross
  pass(5 * kSecond);
  EXPECT_TRUE(receiver.complete);
  EXPECT_TRUE(sender.is_settled);
}

TEST_F(ChannelScript, ALinkThatIsSilentWhileAnotherOneIsNotIsGivenUp) {
  for (const Rail silent : {0, 1}) {
    connect(2);
    FakeConnection* connection = network_->connection(silent);
    ASSERT_NE(connection, nullptr);
    network_->break_connection(*connection, /*silent=*/true);
    TestReceiver& receiver = receive(1, 1, kLarge);
    TestSender& sender = send(0, 1, kLarge);
    pass(2 * kSecond);
    EXPECT_TRUE(receiver.complete);
    EXPECT_TRUE(sender.is_settled);
    EXPECT_GE(failures(0) + failures(1), 1u);
    // It is made again when there is something to send.
    receive(1, 2, 10);
    send(0, 2, 10);
    network_->settle_down();
    EXPECT_EQ(channel(0).up(), 3u);
    network_.reset();
  }
}

TEST_F(ChannelScript, ALinkThatOneSideGivesUpIsGivenUpByTheOther) {
  connect(2);
  network_->ends_vanish = true;  // as with a cable that is pulled
  channel(0).on_carrier(1, /*up=*/false);
  network_->settle_down();  // no time passes
  EXPECT_EQ(channel(1).up(), 1u);
}

TEST_F(ChannelScript, ALinkThatCameBackIsGivenLittleAtFirst) {
  connect(2);
  EXPECT_NEAR(share_of_1(1), 0.5, 0.1);
  network_->break_connection(*network_->connection(1), /*silent=*/false);
  network_->settle_down();
  receive(0, 2, 10);  // there is something to wait for, so it is made again
  send(0, 3, 10);
  for (int i = 0; i < 100 && channel(0).up() != 3; ++i) pass(5 * kMillisecond);
  ASSERT_EQ(channel(0).up(), 3u);
  EXPECT_LT(share_of_1(4), 0.2);
  pass(kSecond);
  EXPECT_NEAR(share_of_1(5), 0.5, 0.1);
}

// Frames of one rail vanish from here on; the kernels notice, too.
void swallow(FakeNetwork& network, Rail rail) {
  FakeConnection* connection = network.connection(rail);
  ASSERT_NE(connection, nullptr);
  network.break_connection(*connection, /*silent=*/true);
  for (auto& end : connection->ends) {
    end.readable = 0;
    end.unanswered = kSecond;
  }
}

TEST_F(ChannelScript, ALinkWhosePeersMachineConfirmsNothingIsGivenUpSoon) {
  connect(2);
  swallow(*network_, 1);
  TestReceiver& receiver = receive(1, 1, kLarge);
  TestSender& sender = send(0, 1, kLarge);
  pass(Pulse::kProcessDead - 10 * kMillisecond);
  EXPECT_TRUE(receiver.complete);
  EXPECT_TRUE(sender.is_settled);
  EXPECT_GE(failures(0) + failures(1), 1u);
  EXPECT_EQ(network_->side(0).suspicions, std::vector<Rail>{1});
}

// A kernel sends a lost frame again once another one has arrived, which shows the gap; without one,
// too late.
TEST_F(ChannelScript, ALinkThatLosesOneFrameIsNotGivenUp) {
  for (const Rail lossy : {0, 1}) {
    connect(2);
    FakeConnection* connection = network_->connection(lossy);
    ASSERT_NE(connection, nullptr);
    TestReceiver& receiver = receive(1, 1, kLarge);
    connection->weight = 0;  // what is behind the lost frame has to wait for it
    for (auto& end : connection->ends) end.unanswered = kSecond;
    TestSender& sender = send(0, 1, kLarge);
    const int before = connection->ends[0].pings;
    for (int i = 0; i < 100 && connection->ends[0].pings < before + 4; ++i) {
      pass(5 * kMillisecond);
    }
    connection->weight = 10;
    for (auto& end : connection->ends) end.unanswered = 0;
    pass(kSecond);
    EXPECT_TRUE(receiver.complete);
    EXPECT_TRUE(sender.is_settled);
    EXPECT_EQ(failures(0) + failures(1), 0u);
    network_.reset();
  }
}

TEST_F(ChannelScript, ALinkThatLosesMuchIsLeftAloneUntilPingsShowThatItLosesNothing) {
  connect(2);
  receive(0, 1, 10);  // there is something to wait for
  FakeConnection::End& end = network_->connection(1)->ends[0];
  end.packets = {1000, 10};
  pass(50 * kMillisecond);
  EXPECT_NEAR(share_of_1(2), 0.5, 0.1);
  lose_much(1);
  EXPECT_EQ(share_of_1(3), 0);
  const int before = end.pings;
  pass(kSecond);
  EXPECT_GT(end.pings, before + 30);
  EXPECT_EQ(share_of_1(4), 0) << "it has sent nothing that could have been lost";
  end.packets.sent += 1000;
  pass(50 * kMillisecond);
  EXPECT_NEAR(share_of_1(5), 0.5, 0.1);
  EXPECT_EQ(failures(0) + failures(1), 0u);
}

TEST_F(ChannelScript, ALinkThatLosesMuchIsLeftAloneAfterItsDeathToo) {
  connect(2);
  receive(0, 1, 10);
  lose_much(1);
  network_->break_connection(*network_->connection(1), /*silent=*/false);
  network_->settle_down();
  send(0, 2, 10);  // it is made again
  for (int i = 0; i < 100 && channel(0).up() != 3; ++i) pass(5 * kMillisecond);
  ASSERT_EQ(channel(0).up(), 3u);
  pass(kSecond);
  EXPECT_EQ(share_of_1(3), 0);
}

TEST_F(ChannelScript, ShortMessagesGoByTheLinkThatTakesBurstsInLessTime) {
  for (const Rail slow : {0, 1}) {
    std::vector<Nanos> burst_takes(2);
    burst_takes[static_cast<size_t>(slow)] = 20 * kMillisecond;
    connect(2, burst_takes);
    receive(0, 1, 10);
    EXPECT_EQ(rail_of_short(2), 0) << "nothing is known";
    pass(100 * kMillisecond);
    EXPECT_EQ(rail_of_short(3), 1 - slow) << "one burst by each is enough";
    pass(kSecond);
    EXPECT_EQ(rail_of_short(4), 1 - slow);
    for (const Rail rail : {0, 1}) {
      EXPECT_EQ(burst_frames(rail), 3 * RateTrial::kFrames) << "rail " << rail;
    }
    pass(30 * kSecond);
    EXPECT_EQ(burst_frames(0) + burst_frames(1), 6 * RateTrial::kFrames) << "once";
    network_.reset();
  }
}

TEST_F(ChannelScript, OneBurstThatIsDelayedSaysNothing) {
  connect(2, {100 * kMillisecond, 20 * kMillisecond});
  receive(0, 1, 10);
  FakeConnection::End& end = network_->connection(0)->ends[0];
  ASSERT_EQ(end.burst_frames, RateTrial::kFrames);
  end.burst_takes = 0;
  pass(kSecond);
  EXPECT_EQ(end.burst_frames, 3 * RateTrial::kFrames);
  EXPECT_EQ(rail_of_short(2), 0);
}

TEST_F(ChannelScript, BurstsGoWhereTheyTellSomething) {
  connect(1);
  receive(0, 1, 10);
  pass(kSecond);
  EXPECT_EQ(burst_frames(0), 0) << "there is no other link";
  network_.reset();

  connect(2);
  receive(1, 2, 256 << 10);
  send(0, 2, 256 << 10);
  clock_.advance(20 * kMillisecond);
  network_->settle_down();
  receive(0, 1, 10);
  pass(kSecond);
  EXPECT_EQ(burst_frames(0) + burst_frames(1), 2 * RateTrial::kFrames)
      << "a long message has shown the rates";
  network_.reset();

  connect(2);
  receive(0, 1, 10);
  lose_much(1);
  const int before = burst_frames(1);
  pass(kSecond);
  EXPECT_EQ(burst_frames(1), before) << "it loses much";
}

TEST_F(ChannelScript, ALinkThatDiesInABurstIsTriedAgainWhenItIsBack) {
  connect(2, {0, 100 * kMillisecond});
  receive(0, 1, 10);
  ASSERT_EQ(burst_frames(1), RateTrial::kFrames);
  network_->break_connection(*network_->connection(1), /*silent=*/false);
  network_->settle_down();
  send(0, 2, 10);
  for (int i = 0; i < 100 && channel(0).up() != 3; ++i) pass(5 * kMillisecond);
  ASSERT_EQ(channel(0).up(), 3u);
  EXPECT_EQ(network_->side(0).device(1)->trial().rate(), 0);
  pass(kSecond);
  EXPECT_GT(network_->side(0).device(1)->trial().rate(), 0);
}

TEST_F(ChannelScript, ALinkThatIsSlowToTakeABurstLearnsItsRateAfterwards) {
  connect(2, {0, kSecond});
  TestReceiver& waiting = receive(0, 1, 10);
  ASSERT_EQ(burst_frames(1), RateTrial::kFrames);
  send(1, 1, 10);
  pass(500 * kMillisecond);  // nobody waits, and the rail may be tried by another link
  ASSERT_TRUE(waiting.complete);
  RateTrial& trial = network_->side(0).device(1)->trial();
  trial.hold(12345, now());
  EXPECT_TRUE(trial.is_due(12345, 0, now()));
  network_->connection(1)->ends[0].burst_takes = 0;
  receive(0, 2, 10);
  pass(2 * kSecond);
  const double before = network_->side(0).device(1)->counters().rate;
  receive(1, 3, 256 << 10);
  send(0, 3, 256 << 10);
  clock_.advance(20 * kMillisecond);
  network_->settle_down();
  EXPECT_NE(network_->side(0).device(1)->counters().rate, before);
}

TEST_F(ChannelScript, AChannelIsNotDrainedInTheMiddleOfABurst) {
  connect(2, {0, 100 * kMillisecond});
  receive(0, 1, 10);
  ASSERT_EQ(burst_frames(1), RateTrial::kFrames);
  pass(50 * kMillisecond);
  EXPECT_FALSE(channel(0).drained());
  clock_.advance(60 * kMillisecond);
  EXPECT_TRUE(channel(0).drained()) << "though nothing has come since";
}

TEST(RateTrial, TheQuickestOfThreeBurstsCounts) {
  RateTrial trial;
  // The seed's parts are how long it waits after the first burst and the second.
  constexpr uint64_t kSeed = (0x0102ULL << 32 | 0x0304ULL << 16 | 0xffff);
  EXPECT_EQ(trial.rate(), 0);
  Nanos time = kSecond;
  Nanos quickest = kSecond;
  for (const Nanos took : {5 * kMillisecond, 2 * kMillisecond, 3 * kMillisecond}) {
    EXPECT_FALSE(trial.is_over());
    EXPECT_EQ(trial.is_due(7, kSeed, time), time == kSecond) << "at a time of its own";
    for (const Nanos end = time + 60 * kMillisecond; !trial.is_due(7, kSeed, time); ++time) {
      ASSERT_LT(time, end);
    }
    trial.sent(time);
    EXPECT_FALSE(trial.is_due(7, kSeed, time + kMillisecond)) << "one is under way";
    time += took;
    trial.arrived(time);
    quickest = std::min(quickest, took);
    EXPECT_DOUBLE_EQ(trial.rate(), (128 << 10) / (static_cast<double>(quickest) / kSecond));
  }
  EXPECT_TRUE(trial.is_over());
  EXPECT_FALSE(trial.is_due(7, 0, time + 100 * kSecond)) << "once";
}

TEST(RateTrial, TellsWhatRanBesideBursts) {
  RateTrial trial;
  EXPECT_FALSE(trial.has_disturbed(kSecond, 2 * kSecond));
  trial.sent(3 * kSecond);
  EXPECT_TRUE(trial.has_disturbed(2 * kSecond, 3 * kSecond)) << "one is under way";
  EXPECT_FALSE(trial.has_disturbed(2 * kSecond, 4 * kSecond)) << "its link has died";
  trial.arrived(3 * kSecond + 5);
  EXPECT_TRUE(trial.has_disturbed(3 * kSecond + 5, 4 * kSecond));
  EXPECT_FALSE(trial.has_disturbed(3 * kSecond + 6, 4 * kSecond));
  trial.disturbed(5 * kSecond);
  EXPECT_TRUE(trial.has_disturbed(5 * kSecond, 6 * kSecond)) << "a peer's";
  EXPECT_FALSE(trial.has_disturbed(5 * kSecond + 1, 6 * kSecond));
}

TEST(RateTrial, OneLinkOfARailIsTriedUnlessItIsGone) {
  RateTrial trial;
  ASSERT_TRUE(trial.is_due(1, 0, kSecond));
  trial.sent(kSecond);
  Nanos time = kSecond;
  for (; time < 2 * kSecond; time += 25 * kMillisecond) {
    trial.hold(1, time);
    trial.hold(2, time);
    EXPECT_FALSE(trial.is_due(2, 0, time));
  }
  EXPECT_TRUE(trial.is_under_way(1));
  time += 300 * kMillisecond;  // nobody looks after the first any more
  EXPECT_TRUE(trial.is_due(2, 0, time));
  EXPECT_FALSE(trial.is_under_way(1));
}

TEST_F(ChannelScript, NewsGoesByALinkThatLosesLittle) {
  for (const Rail lossy : {0, 1}) {
    connect(2);
    receive(0, 1, 10);
    lose_much(lossy);
    network_->connection(lossy)->weight = 0;  // the frame was lost
    channel(0).send_abort({FakeNetwork::kJob, 0, "it broke"});
    network_->settle_down();
    EXPECT_FALSE(network_->side(1).heard_aborts.empty()) << "rail " << lossy << " loses";
    network_.reset();
  }
}

TEST_F(ChannelScript, APeerThatSaysNothingIsNotAskedForEver) {
  connect(2);
  receive(0, 1, 10);
  cut_all(/*silent=*/true);
  pass(10 * kSecond);
  for (const auto& connection : network_->connections()) EXPECT_LE(connection->ends[0].pings, 20);
}

TEST_F(ChannelScript, NewsGoesByALinkThatIsWell) {
  for (const Rail silent : {0, 1}) {
    connect(2);
    swallow(*network_, silent);
    receive(0, 1, 10);
    send(0, 2, kLarge);
    while (network_->side(0).suspicions.empty()) pass(5 * kMillisecond);
    ASSERT_EQ(failures(0) + failures(1), 0u) << "it is given up, not suspected";
    channel(0).send_abort({FakeNetwork::kJob, 0, "it broke"});
    network_->settle_down();
    EXPECT_FALSE(network_->side(1).heard_aborts.empty()) << "rail " << silent << " is silent";
    network_.reset();
  }
}

TEST_F(ChannelScript, ALinkThatIsAskedIsLookedAfterThoughNobodyWaits) {
  connect(2);
  pass(kSecond);
  swallow(*network_, 1);
  pass(kSecond);
  EXPECT_EQ(failures(0) + failures(1), 0u) << "nobody can know";
  channel(0).ask(1);
  pass(kSecond);
  EXPECT_GE(failures(0), 1u);
  EXPECT_EQ(channel(0).up(), 1u);
}

TEST_F(ChannelScript, AMachineThatStandsStillLosesNoLink) {
  connect(2);
  receive(1, 1, kLarge);
  for (const Rail rail : {0, 1}) {
    FakeConnection* connection = network_->connection(rail);
    connection->weight = 0;  // nothing moves
    for (auto& end : connection->ends) end.unanswered = kSecond;
  }
  TestSender& sender = send(0, 1, kLarge);
  pass(kSecond);
  for (const Rail rail : {0, 1}) {
    FakeConnection* connection = network_->connection(rail);
    connection->weight = 10;
    for (auto& end : connection->ends) end.unanswered = 0;
  }
  pass(kSecond);
  EXPECT_TRUE(sender.is_settled);
  EXPECT_EQ(failures(0) + failures(1), 0u);
}

// A segment takes longer than a silent link is given: it is slow, and not silent.
TEST_F(ChannelScript, ASlowLinkThatMovesIsNotGivenUp) {
  connect(2);
  FakeConnection* slow = network_->connection(1);
  ASSERT_NE(slow, nullptr);
  TestReceiver& receiver = receive(1, 1, kLarge);
  slow->weight = 0;  // moves by what is done here
  TestSender& sender = send(0, 1, kLarge);
  for (int i = 0; i < 200; ++i) {
    slow->ends[0].link->write(1000);
    slow->ends[1].link->read(1000);
    pass(5 * kMillisecond);
  }
  EXPECT_FALSE(receiver.complete) << "it is not slow";
  EXPECT_EQ(failures(0) + failures(1), 0u);
  slow->weight = 10;
  pass(kSecond);
  EXPECT_TRUE(receiver.complete);
  EXPECT_TRUE(sender.is_settled);
  EXPECT_EQ(failures(0) + failures(1), 0u);
}

TEST_F(ChannelScript, AGrantThatIsLostInSilenceIsSentAgain) {
  for (const Rail silent : {0, 1}) {
    connect(2);
    TestSender& sender = send(0, 1, kLarge);
    network_->settle_down();
    network_->break_connection(*network_->connection(silent), /*silent=*/true);
    TestReceiver& receiver = receive(1, 1, kLarge);
    pass(2 * kSecond);
    EXPECT_TRUE(receiver.complete) << "rail " << silent;
    EXPECT_TRUE(sender.is_settled);
    network_.reset();
  }
}

TEST_F(ChannelScript, SilenceOfAllLinksIsNoReasonToGiveOneUp) {
  connect(2);
  receive(1, 1, kLarge);
  cut_all(/*silent=*/true);
  send(0, 1, kLarge);
  pass(2 * kSecond);  // as with a peer that is stopped
  EXPECT_EQ(failures(0) + failures(1), 0u);
}

TEST_F(ChannelScript, ConnectionsThatCrossLeaveOneLinkAndCostNothing) {
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    SCOPED_TRACE(seed);
    network_ = std::make_unique<FakeNetwork>(*progress_, seed, 3);
    TestSender& there = send(0, 1, 10);
    TestSender& back = send(1, 1, 10);
    TestReceiver& at_one = receive(1, 1, 10);
    TestReceiver& at_zero = receive(0, 1, 10);
    network_->settle_down();  // no time passes: nobody tries twice
    for (const int side : {0, 1}) {
      EXPECT_EQ(channel(side).up(), 7u);
      EXPECT_EQ(failures(side), 0u);
    }
    EXPECT_TRUE(there.is_settled && back.is_settled && at_one.complete && at_zero.complete);
    network_.reset();
    if (HasFailure()) return;
  }
}

TEST_F(ChannelScript, APeerThatNobodyAnswersForIsGone) {
  connect(2);
  TestSender& sender = send(0, 1, kLarge);
  TestReceiver& receiver = receive(0, 2, 10);
  network_->settle_down();
  cut_all();
  network_->allow = [](int, Rail) { return false; };
  network_->refusal = absl::UnavailableError("nobody listens");
  pass(kSecond);
  EXPECT_TRUE(channel(0).failed());
  for (const absl::Status& failure : {sender.failure, receiver.failure}) {
    EXPECT_TRUE(absl::IsUnavailable(failure)) << failure;
    EXPECT_NE(failure.message().find("side 1"), absl::string_view::npos) << failure;
    EXPECT_NE(failure.message().find("nobody listens"), absl::string_view::npos) << failure;
  }
}

// Others may wait for a rank that does nothing but know of the death. Not at once: they may be in
// an operation that needs nothing of the dead one any more.
TEST_F(ChannelScript, TheDeathOfAPeerThatNobodyWaitsForIsToldAfterAWhile) {
  connect_and_rest();
  cut_all();
  network_->allow = [](int, Rail) { return false; };
  network_->refusal = absl::UnavailableError("nobody listens");
  pass(300 * kMillisecond);
  EXPECT_TRUE(network_->side(0).gone.empty());
  pass(500 * kMillisecond);
  EXPECT_EQ(network_->side(0).gone, std::vector{FakeNetwork::kJob});
}

TEST_F(ChannelScript, APeerThatNobodyWaitsForAndIsBackIsNotGone) {
  connect_and_rest();
  cut_all();
  pass(kSecond);
  EXPECT_NE(channel(0).up(), 0u);
  EXPECT_TRUE(network_->side(0).gone.empty());
  EXPECT_FALSE(channel(0).failed());
}

TEST_F(ChannelScript, APeerThatHasLeftIsNotGone) {
  connect_and_rest();
  channel(1).leave(FakeNetwork::kJob);
  network_->settle_down();
  cut_all();
  network_->allow = [](int, Rail) { return false; };
  network_->refusal = absl::UnavailableError("nobody listens");
  pass(2 * kSecond);
  EXPECT_TRUE(network_->side(0).gone.empty());
}

TEST_F(ChannelScript, APeerThatIsWaitedForAndSaysNothingIsSilent) {
  connect_and_rest();
  cut_all(/*silent=*/true);
  pass(kSecond);
  EXPECT_FALSE(channel(0).is_silent()) << "nobody waits for it";
  receive(0, 1, 10);
  pass(500 * kMillisecond);
  EXPECT_TRUE(channel(0).is_silent());
}

TEST_F(ChannelScript, APeerThatNoLinkReachesIsCutOffAndNotSilent) {
  connect_and_rest();
  receive(0, 1, 10);
  cut_all();
  network_->allow = [](int, Rail) { return false; };
  pass(500 * kMillisecond);
  EXPECT_TRUE(channel(0).is_cut_off());
  EXPECT_FALSE(channel(0).is_silent()) << "it may answer others";
}

TEST_F(ChannelScript, NobodyNeedsWhatWasSentForABrokenContext) {
  connect(1);
  cut_all(/*silent=*/true);
  const TestSender& sender = send(0, 1, 100);
  network_->settle_down();
  ASSERT_TRUE(sender.is_settled);
  EXPECT_FALSE(channel(0).drained());
  network_->side(0).own_aborts.push_back({FakeNetwork::kJob, 0, "it broke"});
  EXPECT_TRUE(channel(0).drained());
}

TEST_F(ChannelScript, ARailThatIsOnlyUnreachableIsTriedAgain) {
  connect(2);
  TestSender& sender = send(0, 1, kLarge);
  TestReceiver& receiver = receive(1, 1, kLarge);
  cut_all();
  network_->allow = [](int, Rail) { return false; };  // an error, but nobody refuses
  pass(3 * kSecond);
  EXPECT_FALSE(channel(0).failed());
  EXPECT_FALSE(receiver.over());
  network_->allow = [](int, Rail rail) { return rail == 1; };
  pass(5 * kSecond);
  EXPECT_TRUE(receiver.complete);
  EXPECT_TRUE(sender.is_settled);
}

TEST_F(ChannelScript, APeerThatSaidGoodbyeHasLeftWhenItsLinksEnd) {
  connect(2);
  TestReceiver& receiver = receive(0, 1, 10);
  channel(1).say_goodbye();
  network_->settle_down();
  EXPECT_TRUE(receiver.failure.ok());
  cut_all();
  pass(kSecond);
  EXPECT_TRUE(absl::IsUnavailable(receiver.failure)) << receiver.failure;
  EXPECT_NE(receiver.failure.message().find("has left"), absl::string_view::npos);
  EXPECT_EQ(failures(0), 0u) << "no failure of the rail";
}

TEST_F(ChannelScript, AGoodbyeBringsTheAcknowledgementsOfSmallMessages) {
  connect(2);
  TestSender& sender = send(0, 1, 100);
  TestReceiver& receiver = receive(1, 1, 100);
  network_->settle_down();
  EXPECT_TRUE(receiver.complete);
  EXPECT_TRUE(sender.is_settled);
  channel(0).say_goodbye();
  network_->settle_down();
  EXPECT_TRUE(channel(0).drained());
  EXPECT_EQ(network_->side(0).pool().bytes_in_use(), 0u);
}

TEST_F(ChannelScript, AnAbortThatIsLostInSilenceIsSaidAgain) {
  connect(2);
  receive(1, 1, 10);
  const wire::Abort abort{FakeNetwork::kJob, 0, "it broke"};
  network_->side(0).own_aborts.push_back(abort);
  network_->break_connection(*network_->connection(0), /*silent=*/true);
  channel(0).send_abort(abort);
  pass(kSecond);
  EXPECT_FALSE(network_->side(1).heard_aborts.empty());
}

// A process that leaves at once: what its only link lost goes by the next one.
TEST_F(ChannelScript, WhatIsNotAcknowledgedIsHandedOverAfterLeaving) {
  connect(1);
  TestReceiver& receiver = receive(1, 1, 100);
  cut_all(/*silent=*/true);
  const TestSender& sender = send(0, 1, 100);
  network_->settle_down();
  ASSERT_TRUE(sender.is_settled);
  channel(0).leave(FakeNetwork::kJob);
  EXPECT_FALSE(channel(0).drained());
  network_->end_silence();
  pass(5 * kSecond);
  EXPECT_TRUE(receiver.complete) << receiver.failure;
  EXPECT_TRUE(channel(0).drained());
  // And then it has left.
  const TestReceiver& late = receive(1, 2, 100);
  pass(kSecond);
  EXPECT_TRUE(absl::IsUnavailable(late.failure)) << late.failure;
}

TEST_F(ChannelScript, LeavingThatIsLostInSilenceIsSaidAgain) {
  connect(2);
  const TestReceiver& receiver = receive(1, 1, 10);
  network_->break_connection(*network_->connection(0), /*silent=*/true);
  channel(0).leave(FakeNetwork::kJob);
  pass(kSecond);
  EXPECT_TRUE(absl::IsUnavailable(receiver.failure)) << receiver.failure;
}

}  // namespace
}  // namespace nezha
