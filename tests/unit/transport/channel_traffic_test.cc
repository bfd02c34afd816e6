// SPDX-License-Identifier: Apache-2.0
// Random traffic of two channels over in-memory links, which are slow, overtake each other and
// break.
#include <algorithm>
#include <array>
#include <cstdlib>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tests/unit/transport/channel_fixture.h"
#include "tests/unit/transport/fake_link.h"
#include "tests/unit/transport/virtual_clock.h"
#include "transport/channel.h"

namespace nezha {
namespace {

using testing::ChannelTest;
using testing::FakeDevice;
using testing::FakeNetwork;
using testing::FakeProcess;
using testing::Part;
using testing::TestReceiver;
using testing::TestSender;
using testing::VirtualClock;

constexpr uint64_t kCasesByDefault = 400;  // of each kind

uint64_t number_from_environment(const char* name, uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

// One case, which follows from a seed.
class RandomCase {
 public:
  using Timers = std::function<void()>;

  // `reading`: the rails whose links read from the peer's memory.
  RandomCase(Progress& progress, VirtualClock& clock, Timers run_timers, uint64_t seed,
             RailMask reading)
      : progress_(progress),
        clock_(clock),
        run_timers_(std::move(run_timers)),
        network_(progress, seed, 1 + static_cast<int>(seed % 4)),
        faults_(seed % 3 != 0),
        ends_early_(seed % 5 == 0) {
    network_.reads_memory = [reading](Rail rail) { return (reading & rail_bit(rail)) != 0; };
    max_tick_ = network_.one_in(2) ? 200 * kMicrosecond : 5 * kMicrosecond;
    network_.on_segment = [this](int side, const wire::FrameHeader& frame,
                                 const wire::DataHeader& data,
                                 std::byte* place) { on_segment(side, frame, data, place); };
    make_flows();
  }

  size_t most_under_way() const { return network_.most_under_way; }

  void run() {
    const int busy_steps = 200 + static_cast<int>(below(1500));
    for (int i = 0; i < busy_steps && !::testing::Test::HasFailure(); ++i) {
      act();
      events();
      if (faults_) fault();
    }
    calm_down();
    for (int i = 0; !done(); ++i) {
      if (::testing::Test::HasFailure()) return;
      ASSERT_LT(i, 100'000) << "it does not end: " << describe();
      act();
      events();
      if (i % 50 == 49) pass_time(5 * kMillisecond);
    }
    part();
    for (const auto& flow : flows_) {
      for (const auto& receiver : flow->receivers) receiver->check_untouched();
    }
  }

 private:
  // The messages of one tag in one direction.
  struct Flow {
    int from = 0;
    wire::MessageInfo info;      // without its total
    std::vector<size_t> totals;  // of the messages
    std::vector<std::unique_ptr<TestSender>> senders;
    std::vector<uint64_t> numbers;  // of the senders' messages
    std::vector<std::unique_ptr<TestReceiver>> receivers;
    bool sender_gave_up = false;
    bool receiver_gave_up = false;
    bool dead() const { return sender_gave_up || receiver_gave_up; }
  };

  uint64_t below(uint64_t limit) { return network_.below(limit); }
  bool one_in(uint64_t n) { return network_.one_in(n); }

  size_t random_size() {
    switch (below(8)) {
      case 0:
        return below(2);
      case 1:
        return wire::kInitialCredit;
      case 2:
        return below(700 << 10);
      case 3:
      case 4:
        return below(40 << 10);
      default:
        return below(3000);
    }
  }

  void make_flows() {
    const uint64_t count = 1 + below(6);
    for (uint64_t i = 0; i < count; ++i) {
      auto flow = std::make_unique<Flow>();
      flow->from = static_cast<int>(below(2));
      // Two flows may share a tag, one in each direction.
      flow->info.context = below(2);
      flow->info.tag = i / 2;
      flow->info.signature = 77;
      for (const auto& other : flows_) {
        if (other->from == flow->from && other->info.context == flow->info.context &&
            other->info.tag == flow->info.tag) {
          flow->info.tag += 100;
        }
      }
      const uint64_t messages = 1 + below(6);
      for (uint64_t m = 0; m < messages; ++m) flow->totals.push_back(random_size());
      flows_.push_back(std::move(flow));
    }
  }

  uint64_t name(const Flow& flow, size_t index) const {
    return (flow.info.context << 40) + (flow.info.tag << 20) +
           (static_cast<uint64_t>(flow.from) << 16) + index + 1;
  }

  // Something a user does, on either side.
  void act() {
    Flow& flow = *flows_[below(flows_.size())];
    if (one_in(2)) {
      send(flow);
    } else {
      receive(flow);
    }
  }

  void send(Flow& flow) {
    if (flow.sender_gave_up) return;
    Channel& channel = network_.channel(flow.from);
    if (flow.senders.size() < flow.totals.size() && (flow.senders.empty() || one_in(3))) {
      const size_t index = flow.senders.size();
      wire::MessageInfo info = flow.info;
      info.total = flow.totals[index];
      auto sender = std::make_unique<TestSender>(name(flow, index), info.total);
      cut(*sender, info.total);
      Route route;
      route.granule = size_t{1} << below(7);
      route.segments_per_rail = 1 + static_cast<int>(below(2));
      if (one_in(3)) route.rails = 1 + static_cast<RailMask>(below(15));
      route.is_copied = sender->is_copied = one_in(8);
      sender->message = channel.open(info, route, sender.get());
      flow.numbers.push_back(sender->message->number());
      flow.senders.push_back(std::move(sender));
      return;
    }
    if (flow.senders.empty()) return;
    TestSender& sender = *flow.senders[below(flow.senders.size())];
    if (sender.message == nullptr) return;
    if (!sender.to_push.empty()) {
      const Part part = sender.to_push.back();
      sender.to_push.pop_back();
      sender.pushed_bytes += part.length;
      const Rail rail =
          part.length <= wire::kMaxSegment && one_in(2) ? static_cast<Rail>(below(4)) : kAnyRail;
      channel.push(*sender.message, part.offset, sender.memory.data() + part.offset, part.length,
                   rail);
      if (sender.is_copied) sender.take_back(part.offset, part.length);
    } else if (!sender.settling) {
      sender.settling = true;
      channel.settle(*sender.message);
    }
    if (ends_early_ && sender.message != nullptr && one_in(40)) {
      flow.sender_gave_up = true;
      for (auto& each : flow.senders) {
        if (each->message == nullptr) continue;
        channel.abandon(*each->message);
        each->abandoned();
      }
    }
  }

  void cut(TestSender& sender, size_t total) {
    for (size_t offset = 0; offset < total;) {
      const size_t length = std::min(total - offset, one_in(3) ? total : 1 + below(300 << 10));
      sender.to_push.push_back({offset, length});
      offset += length;
    }
    std::shuffle(sender.to_push.begin(), sender.to_push.end(), network_.random());
  }

  void receive(Flow& flow) {
    if (flow.receiver_gave_up) return;
    Channel& channel = network_.channel(1 - flow.from);
    if (flow.receivers.size() < flow.totals.size()) {
      if (!one_in(4)) return;
      const size_t index = flow.receivers.size();
      wire::MessageInfo info = flow.info;
      info.total = flow.totals[index];
      flow.receivers.push_back(std::make_unique<TestReceiver>(name(flow, index), info));
      TestReceiver& receiver = *flow.receivers.back();
      asked(flow);
      Inbox::Ticket* ticket = channel.post(info, &receiver);
      if (!receiver.over()) receiver.ticket = ticket;
    }
    if (ends_early_ && one_in(40)) cancel_all(flow);
  }

  void cancel_all(Flow& flow) {
    Channel& channel = network_.channel(1 - flow.from);
    flow.receiver_gave_up = true;
    for (auto& receiver : flow.receivers) {
      if (receiver->over()) continue;
      channel.cancel(receiver->ticket);
      receiver->cancelled = true;
      receiver->scribble();
    }
  }

  // Something the network does.
  void events() {
    for (uint64_t i = below(4); i > 0; --i) {
      network_.step();
      if (!one_in(4)) progress_.run_deferred();  // several events may arrive at once
    }
    clock_.advance(static_cast<Nanos>(below(static_cast<uint64_t>(max_tick_))));
    if (one_in(100)) pass_time(static_cast<Nanos>(below(30)) * kMillisecond);
    check_held();
  }

  void pass_time(Nanos time) {
    clock_.advance(time);
    run_timers_();
  }

  void fault() {
    if (one_in(150)) network_.break_some(/*silent=*/false);
    if (one_in(600)) network_.break_some(/*silent=*/true);
    if (one_in(300)) network_.end_silence();
    if (one_in(300)) toggle_carrier(static_cast<int>(below(2)));
    if (one_in(500)) {
      const uint64_t odds = below(3);
      network_.allow = [this, odds](int, Rail) { return odds == 0 || one_in(1 + odds); };
    }
  }

  void toggle_carrier(int side) {
    FakeProcess& process = network_.side(side);
    const auto rail = static_cast<Rail>(below(process.devices.size()));
    auto* device = static_cast<FakeDevice*>(process.device(rail));
    device->set_carrier(!device->carrier());
    process.channel->on_carrier(rail, device->carrier());
  }

  // Ends all faults.
  void calm_down() {
    faults_ = false;
    ends_early_ = false;
    network_.allow = [](int, Rail) { return true; };
    network_.end_silence();
    for (const int side : {0, 1}) {
      for (auto& device : network_.side(side).devices) {
        auto* fake = static_cast<FakeDevice*>(device.get());
        if (fake->carrier()) continue;
        fake->set_carrier(true);
        network_.channel(side).on_carrier(fake->rail(), true);
      }
    }
  }

  bool done() {
    for (const auto& flow : flows_) {
      if (!flow->sender_gave_up) {
        if (flow->senders.size() < flow->totals.size()) return false;
        for (const auto& sender : flow->senders) {
          // If the receiver cancelled before the message came, the message is not granted unless
          // the receiver asks again.
          if (flow->receiver_gave_up) continue;
          if (!sender->is_settled) return false;
        }
      }
      if (!flow->dead()) {
        if (flow->receivers.size() < flow->totals.size()) return false;
        for (const auto& receiver : flow->receivers) {
          if (!receiver->complete) return false;
        }
      }
    }
    return true;
  }

  // Ends the flows that a side gave up, and checks that neither side keeps anything.
  void part() {
    for (auto& flow : flows_) {
      if (!flow->dead()) continue;
      Channel& channel = network_.channel(flow->from);
      for (auto& sender : flow->senders) {
        if (sender->message == nullptr) continue;
        channel.abandon(*sender->message);
        sender->abandoned();
      }
      cancel_all(*flow);
    }
    for (const int side : {0, 1}) {
      for (const auto& flow : flows_) network_.channel(side).leave({0, flow->info.context});
    }
    // Sides notice broken links, and make them again if there is something left to send.
    for (int i = 0; i < 10; ++i) {
      settle_down();
      pass_time(50 * kMillisecond);
    }
    // A goodbye makes the peer acknowledge everything, on the link that carried the goodbye.
    for (int i = 0; i < 50 && !(drained(0) && drained(1)); ++i) {
      for (const int side : {0, 1}) network_.channel(side).say_goodbye();
      settle_down();
      pass_time(kMillisecond);
    }
    for (const int side : {0, 1}) {
      EXPECT_TRUE(drained(side)) << "side " << side << " has data that is never acknowledged";
      EXPECT_FALSE(network_.channel(side).failed()) << network_.channel(side).failure();
      EXPECT_EQ(network_.side(side).pool().bytes_in_use(), 0u)
          << "side " << side << " keeps memory for messages that are over";
      EXPECT_EQ(network_.channel(side).charged(), network_.channel(1 - side).consumed())
          << "side " << side << " has lost credit";
    }
  }
  bool drained(int side) { return network_.channel(side).drained(); }
  void settle_down() {
    for (int i = 0; i < 200'000 && network_.step(); ++i) {
      progress_.run_deferred();
      clock_.advance(100);
    }
  }

  // Records the bytes that a side holds for messages that it has not asked for.
  void on_segment(int side, const wire::FrameHeader& frame, const wire::DataHeader& data,
                  std::byte* place) {
    const Flow* flow = find(1 - side, data.info);
    ASSERT_NE(flow, nullptr) << "a message that was not sent";
    if (place == nullptr || frame.length == 0) return;
    for (const auto& receiver : flow->receivers) {
      if (!receiver->owns(place)) continue;
      EXPECT_FALSE(receiver->over()) << "a place in memory that is no longer the channel's";
      EXPECT_EQ(place, receiver->memory.data() + data.offset);
    }
    const auto number = std::find(flow->numbers.begin(), flow->numbers.end(), data.number);
    ASSERT_NE(number, flow->numbers.end());
    if (static_cast<size_t>(number - flow->numbers.begin()) < flow->receivers.size()) return;
    // The segment is held for a receiver that has not asked yet.
    EXPECT_TRUE(frame.flags & wire::kFlagCharged);
    unasked_[static_cast<size_t>(side)][{data.number, data.offset}] = frame.length;
  }
  void check_held() {
    for (const int side : {0, 1}) {
      auto& unasked = unasked_[static_cast<size_t>(side)];
      uint64_t bytes = 0;
      for (const auto& [segment, length] : unasked) bytes += length;
      EXPECT_LE(bytes, Inbox::kCredit) << "memory for what nobody has asked for";
    }
  }
  // The segments of these messages are no longer unasked.
  void asked(const Flow& flow) {
    auto& unasked = unasked_[static_cast<size_t>(1 - flow.from)];
    for (auto entry = unasked.begin(); entry != unasked.end();) {
      const auto number = std::find(flow.numbers.begin(), flow.numbers.end(), entry->first.first);
      const bool is_asked =
          number != flow.numbers.end() &&
          static_cast<size_t>(number - flow.numbers.begin()) < flow.receivers.size();
      entry = is_asked ? unasked.erase(entry) : std::next(entry);
    }
  }

  const Flow* find(int from, const wire::MessageInfo& info) const {
    for (const auto& flow : flows_) {
      if (flow->from == from && flow->info.context == info.context && flow->info.tag == info.tag) {
        return flow.get();
      }
    }
    return nullptr;
  }

  std::string describe() {
    std::string text;
    for (const auto& flow : flows_) {
      absl::StrAppend(&text, "\nfrom ", flow->from, " tag ", flow->info.tag, " context ",
                      flow->info.context, flow->sender_gave_up ? " abandoned" : "",
                      flow->receiver_gave_up ? " cancelled" : "");
      for (size_t i = 0; i < flow->totals.size(); ++i) {
        absl::StrAppend(&text, "\n  ", flow->totals[i], " bytes: ");
        if (i < flow->senders.size()) {
          const TestSender& sender = *flow->senders[i];
          absl::StrAppend(&text, sender.is_settled ? "settled" : "not settled", ", pushed ",
                          sender.pushed_bytes, ", released ", sender.released_bytes, ", ");
        }
        if (i < flow->receivers.size()) {
          absl::StrAppend(&text, "landed ", flow->receivers[i]->landed_bytes);
        }
      }
    }
    for (const int side : {0, 1}) {
      absl::StrAppend(&text, "\nside ", side, ": links ", network_.channel(side).up(), " failure ",
                      network_.channel(side).failure().ToString());
    }
    return text;
  }

  Progress& progress_;
  VirtualClock& clock_;
  Timers run_timers_;
  std::vector<std::unique_ptr<Flow>> flows_;
  // Segments that each side received before it asked for them: (message, offset) and length.
  std::array<std::map<std::pair<uint64_t, uint64_t>, size_t>, 2> unasked_;
  FakeNetwork network_;  // must be destroyed first, because it refers to the flows
  bool faults_;
  bool ends_early_;
  Nanos max_tick_ = 0;
};

// NEZHA_TEST_SEED=n runs only case n; NEZHA_TEST_CASES=n runs n cases.
class ChannelTrafficTest : public ChannelTest {
 protected:
  void run_cases(RailMask reading) {
    const uint64_t only = number_from_environment("NEZHA_TEST_SEED", 0);
    const uint64_t first = only == 0 ? 1 : only;
    const uint64_t last =
        only == 0 ? number_from_environment("NEZHA_TEST_CASES", kCasesByDefault) : only;
    for (uint64_t seed = first; seed <= last; ++seed) {
      SCOPED_TRACE(absl::StrCat("NEZHA_TEST_SEED=", seed));
      RandomCase random(
          *progress_, clock_, [this] { run_timers(); }, seed, reading);
      random.run();
      most_under_way_ = std::max(most_under_way_, random.most_under_way());
      if (HasFailure()) return;
    }
  }

  size_t most_under_way_ = 0;
};

TEST_F(ChannelTrafficTest, TransfersOverStreamsThatBreak) {
  run_cases(0);
  EXPECT_EQ(most_under_way_, 1u);
}

TEST_F(ChannelTrafficTest, TransfersOverLinksThatReadThePeersMemoryAndBreak) {
  run_cases(kAllRails);
  EXPECT_GT(most_under_way_, 2u);
}

TEST_F(ChannelTrafficTest, TransfersOverLinksOfBothKindsThatBreak) {
  run_cases(0b0101);
  EXPECT_GT(most_under_way_, 2u);
}

}  // namespace
}  // namespace nezha
