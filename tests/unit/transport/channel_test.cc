// Two channels joined by links in memory that are slow, overtake each other and break.
#include "transport/channel.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstdlib>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/interval_set.h"
#include "gtest/gtest.h"
#include "tests/unit/transport/fake_link.h"
#include "tests/unit/transport/virtual_clock.h"

namespace nezha {
namespace {

using testing::FakeConnection;
using testing::FakeDevice;
using testing::FakeNetwork;
using testing::FakeProcess;
using testing::VirtualClock;

// What no message contains by design: memory that is not the channel's any more is filled with it.
constexpr std::byte kScribble{0xee};

// Byte `offset` of a message. Depends on all of the message's name, so that a byte of another
// place or message shows.
std::byte pattern(uint64_t name, uint64_t offset) {
  uint64_t x = name * 0x9e3779b97f4a7c15u + offset * 0xbf58476d1ce4e5b9u;
  x ^= x >> 29;
  x *= 0x94d049bb133111ebu;
  const auto byte = static_cast<uint8_t>(x >> 56);
  return byte == 0xee ? std::byte{0x11} : std::byte{byte};
}

// A part of a message; stands in for what an operation keeps.
struct Part {
  uint64_t offset = 0;
  size_t length = 0;
};

struct TestSender final : Sender {
  uint64_t name = 0;
  std::vector<std::byte> memory;
  std::vector<Part> to_push;
  IntervalSet released_parts;
  uint64_t released_bytes = 0;
  uint64_t pushed_bytes = 0;
  OutMessage* message = nullptr;  // null: settled, failed or abandoned
  bool settling = false;
  bool is_settled = false;
  bool gone = false;  // abandoned: nothing may be called
  absl::Status failure;

  TestSender(uint64_t its_name, size_t bytes) : name(its_name), memory(bytes) {
    for (size_t i = 0; i < bytes; ++i) memory[i] = pattern(name, i);
  }
  void released(uint64_t offset, size_t length) override {
    EXPECT_FALSE(gone) << "released after abandon";
    EXPECT_FALSE(is_settled) << "released after settled";
    ASSERT_LE(offset + length, memory.size());
    EXPECT_TRUE(released_parts.add(offset, offset + length)) << "released twice";
    released_bytes += length;
    // The memory is the sender's again.
    std::fill_n(memory.begin() + static_cast<std::ptrdiff_t>(offset), length, kScribble);
  }
  void settled() override {
    EXPECT_FALSE(gone);
    EXPECT_TRUE(settling);
    EXPECT_FALSE(is_settled) << "settled twice";
    EXPECT_EQ(released_bytes, memory.size()) << "settled with memory that was not released";
    is_settled = true;
    message = nullptr;
    memory = {};
  }
  void failed(const absl::Status& why) override {
    EXPECT_FALSE(gone);
    EXPECT_TRUE(failure.ok()) << "failed twice";
    failure = why;
    message = nullptr;
    memory = {};
  }
  void abandoned() {
    gone = true;
    message = nullptr;
    std::fill(memory.begin(), memory.end(), kScribble);
    memory = {};
  }
};

struct TestReceiver final : Receiver {
  uint64_t name = 0;
  wire::MessageInfo info;
  std::vector<std::byte> memory;
  std::map<uint64_t, size_t> placed;  // not landed
  IntervalSet landed_parts;
  uint64_t landed_bytes = 0;
  int landings = 0;
  Inbox::Ticket* ticket = nullptr;
  bool complete = false;
  bool cancelled = false;
  absl::Status failure;

  TestReceiver(uint64_t its_name, const wire::MessageInfo& its_info)
      : name(its_name), info(its_info), memory(its_info.total, std::byte{0xcc}) {}

  bool over() const { return complete || cancelled || !failure.ok(); }
  bool owns(const std::byte* place) const {
    return place >= memory.data() && place < memory.data() + memory.size();
  }
  std::byte* place(uint64_t offset, size_t length) override {
    EXPECT_FALSE(over()) << "place after the end";
    EXPECT_GT(length, 0u);
    EXPECT_LE(offset + length, info.total);
    EXPECT_FALSE(landed_parts.intersects(offset, offset + length)) << "placed after it landed";
    const auto next = placed.lower_bound(offset);
    EXPECT_TRUE(next == placed.end() || next->first >= offset + length) << "placed twice";
    EXPECT_TRUE(next == placed.begin() ||
                std::prev(next)->first + std::prev(next)->second <= offset)
        << "placed twice";
    placed[offset] = length;
    return memory.data() + offset;
  }
  void landed(uint64_t offset, size_t length, Rail) override {
    EXPECT_FALSE(over()) << "landed after the end";
    ++landings;
    if (info.total == 0) {
      EXPECT_EQ(length, 0u);
      EXPECT_EQ(landings, 1);
    } else {
      EXPECT_EQ(placed.count(offset), 1u) << "landed without a place";
      EXPECT_EQ(placed[offset], length);
      placed.erase(offset);
      EXPECT_TRUE(landed_parts.add(offset, offset + length)) << "landed twice";
      for (size_t i = offset; i < offset + length; ++i) {
        if (memory[i] == pattern(name, i)) continue;
        ADD_FAILURE() << "byte " << i << " of message " << name << " is wrong in segment ["
                      << offset << ", +" << length << ")";
        break;
      }
      // A receiver may have used and overwritten it by now.
      std::fill_n(memory.begin() + static_cast<std::ptrdiff_t>(offset), length, kScribble);
    }
    landed_bytes += length;
    if (landed_bytes == info.total) {
      complete = true;
      ticket = nullptr;
      EXPECT_TRUE(placed.empty()) << "complete with segments that have not landed";
    }
  }
  void failed(const absl::Status& why) override {
    EXPECT_FALSE(over());
    failure = why;
    ticket = nullptr;
    scribble();
  }
  void mismatched(const wire::MessageInfo&) override {
    ADD_FAILURE() << "mismatched";
    failed(absl::FailedPreconditionError("mismatched"));
  }
  void scribble() { std::fill(memory.begin(), memory.end(), kScribble); }
  // At the end: nothing was written when the memory was not the channel's any more.
  void check_untouched() const {
    if (!over()) return;
    EXPECT_EQ(std::count(memory.begin(), memory.end(), kScribble),
              static_cast<std::ptrdiff_t>(memory.size()))
        << "written after the end of message " << name;
  }
};

constexpr uint64_t kCasesByDefault = 1000;

uint64_t number_from_environment(const char* name, uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

class ChannelTest : public ::testing::Test {
 protected:
  ChannelTest() {
    auto made = Progress::create();
    EXPECT_TRUE(made.ok());
    progress_ = *std::move(made);
    guard_ = std::make_unique<Progress::Guard>(*progress_);
  }
  ~ChannelTest() override { guard_.reset(); }

  // Timers whose time has come.
  void run_timers() {
    Waiter never;
    progress_->wait(*guard_, never, now() + 100);
  }

  std::unique_ptr<Progress> progress_;
  std::unique_ptr<Progress::Guard> guard_;  // throughout, so that no other thread drives
  VirtualClock clock_;
};

// ---- The random test ---------------------------------------------------------------------------

// One case: what a seed makes of it.
class RandomCase {
 public:
  using Timers = std::function<void()>;

  RandomCase(Progress& progress, VirtualClock& clock, Timers run_timers, uint64_t seed)
      : progress_(progress),
        clock_(clock),
        run_timers_(std::move(run_timers)),
        network_(progress, seed, 1 + static_cast<int>(seed % 4)),
        faults_(seed % 3 != 0),
        ends_early_(seed % 5 == 0) {
    max_tick_ = network_.one_in(2) ? 200 * kMicrosecond : 5 * kMicrosecond;
    network_.on_segment = [this](int side, const wire::FrameHeader& frame,
                                 const wire::DataHeader& data,
                                 std::byte* place) { on_segment(side, frame, data, place); };
    make_flows();
  }

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
    wire::MessageInfo info;      // without the total
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
      // Two flows may have one tag, one in each direction.
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
      if (!one_in(4)) progress_.run_deferred();  // several events may come at once
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

  // From here on nothing fails any more.
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
          // What the receiver cancelled before it came is not granted unless it asks again.
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

  // Ends what one side gave up, and sees that nothing is left on either.
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
    // Links that broke are noticed, and made again if something is left to send.
    for (int i = 0; i < 10; ++i) {
      settle_down();
      pass_time(50 * kMillisecond);
    }
    // A goodbye makes the peer acknowledge all, on the link it comes by.
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

  // What a side keeps of messages that nobody there has asked for.
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
    // It is kept for a receiver that has not asked yet.
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
  // No longer unasked.
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
  // What a side was sent and had not asked for: message and offset, and the length.
  std::array<std::map<std::pair<uint64_t, uint64_t>, size_t>, 2> unasked_;
  FakeNetwork network_;  // goes first: it refers to the flows
  bool faults_;
  bool ends_early_;
  Nanos max_tick_ = 0;
};

// NEZHA_TEST_SEED=n runs that one case, NEZHA_TEST_CASES=n that many.
TEST_F(ChannelTest, RandomTrafficOverLinksThatBreak) {
  const uint64_t only = number_from_environment("NEZHA_TEST_SEED", 0);
  const uint64_t first = only == 0 ? 1 : only;
  const uint64_t last =
      only == 0 ? number_from_environment("NEZHA_TEST_CASES", kCasesByDefault) : only;
  for (uint64_t seed = first; seed <= last; ++seed) {
    SCOPED_TRACE(absl::StrCat("NEZHA_TEST_SEED=", seed));
    RandomCase(
        *progress_, clock_, [this] { run_timers(); }, seed)
        .run();
    if (HasFailure()) return;
  }
}

// ---- What the random test meets too rarely, one by one -----------------------------------------

class ChannelScript : public ChannelTest {
 protected:
  // Two sides joined by links on all of their rails.
  void connect(int rails) {
    network_ = std::make_unique<FakeNetwork>(*progress_, 1, rails);
    auto& first = send(0, 90, 1);
    auto& answer = receive(1, 90, 1);
    network_->settle_down();
    ASSERT_TRUE(first.is_settled);
    ASSERT_TRUE(answer.complete);
    for (const int side : {0, 1}) ASSERT_EQ(std::popcount(channel(side).up()), rails);
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

constexpr size_t kLarge = 1 << 20;  // beyond the credit

TEST_F(ChannelScript, AGrantThatIsLostWithItsLinkIsSentAgain) {
  connect(2);
  TestSender& sender = send(0, 1, kLarge);
  network_->settle_down();
  TestReceiver& receiver = receive(1, 1, kLarge);  // grants
  cut_all();
  pass(kSecond);
  EXPECT_TRUE(receiver.complete);
  EXPECT_TRUE(sender.is_settled);
}

TEST_F(ChannelScript, AGrantThatFindsNoLinkIsSentWhenThereIsOne) {
  connect(2);
  TestSender& sender = send(0, 1, kLarge);
  network_->settle_down();
  cut_all();
  network_->allow = [](int, Rail) { return false; };
  pass(kSecond / 2);
  ASSERT_EQ(channel(1).up(), 0u);
  TestReceiver& receiver = receive(1, 1, kLarge);
  network_->allow = [](int, Rail) { return true; };
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
    // It may have been given too much: it starts again at half of what was assumed.
    const auto rate = [&](int side) {
      return network_->side(side).device(silent)->counters().rate;
    };
    EXPECT_EQ(std::max(rate(0), rate(1)), Scheduler::kInitialRate / 2);
    // It is made again when there is something to send.
    receive(1, 2, 10);
    send(0, 2, 10);
    network_->settle_down();
    EXPECT_EQ(channel(0).up(), 3u);
    network_.reset();
  }
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
