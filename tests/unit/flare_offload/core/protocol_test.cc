// SPDX-License-Identifier: Apache-2.0
// Hosts and switches that follow the protocol, over a network that loses, repeats, reorders and
// delays frames at random and delivers some copies long afterwards. Every host must get the right
// result of every block exactly once.
#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <queue>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "flare_offload/core/slot_table.h"
#include "flare_offload/core/window.h"
#include "gtest/gtest.h"
#include "tests/unit/collectives/reference.h"

namespace nezha::flare {
namespace {

constexpr size_t kBlockElements = 3;
using Elements = std::vector<uint32_t>;

// Depends on everything that could be confused.
uint32_t input(int rank, uint32_t seq, size_t element) {
  uint64_t x = uint64_t{seq} * 1'000'003 + static_cast<uint64_t>(rank) * 7919 + element;
  x *= 0x9e3779b97f4a7c15;
  return static_cast<uint32_t>(x >> 32);
}

ReduceOperation operation_of(uint32_t seq) {
  return static_cast<ReduceOperation>(1 + seq % 4);  // sum, product, min, max
}

BlockId block_of(uint32_t seq) { return {seq, seq / 10, DataType::kUint32, operation_of(seq)}; }

Elements contribution(int rank, uint32_t seq) {
  Elements values(kBlockElements);
  for (size_t i = 0; i < kBlockElements; ++i) values[i] = input(rank, seq, i);
  return values;
}

Elements expected(int ranks, uint32_t seq) {
  Elements sum = contribution(0, seq);
  for (int rank = 1; rank < ranks; ++rank) {
    for (size_t i = 0; i < kBlockElements; ++i) {
      sum[i] = reference::combine(operation_of(seq), sum[i], input(rank, seq, i));
    }
  }
  return sum;
}

struct Weather {
  double loss = 0;
  double repeats = 0;
  double delays = 0;  // the fraction of frames that arrive up to 100 round trips late
  Nanos jitter = 40 * kMicrosecond;  // by which frames overtake each other
};

struct Layout {
  std::vector<int> leaves;  // the number of hosts below each leaf; a single leaf is the only switch
  uint32_t window = 4;
  uint32_t first_seq = 0;
  uint32_t blocks = 300;
  bool reproducible = false;
};

// A sender and receiver: a host or a switch.
class Party {
 public:
  virtual ~Party() = default;
  // `child`: the sender's place among the receiver's children, or -1 if it is the parent.
  virtual void receive(int child, const Frame& frame, Nanos now) = 0;
};

class Network {
 public:
  Network(const Weather& weather, uint32_t seed) : weather_(weather), random_(seed) {}

  void send(Party* to, int child, const FrameHeader& header, absl::Span<const std::byte> payload) {
    if (chance(weather_.loss)) return;
    const int copies = chance(weather_.repeats) ? 2 : 1;
    for (int i = 0; i < copies; ++i) {
      Nanos delay = 20 * kMicrosecond + random_() % (weather_.jitter + 1);
      if (chance(weather_.delays)) delay += random_() % (10 * kMillisecond);
      events_.push({now_ + delay, count_++, to, child, header, {payload.begin(), payload.end()}});
    }
  }
  // Delivers the next frame. Returns false, and sets the time to `end`, if none is due before then.
  bool deliver(Nanos end) {
    if (events_.empty() || events_.top().time > end) {
      now_ = end;
      return false;
    }
    const Event event = events_.top();
    events_.pop();
    now_ = event.time;
    event.to->receive(event.child, {event.header, event.payload}, now_);
    return true;
  }
  Nanos now() const { return now_; }
  bool empty() const { return events_.empty(); }

 private:
  struct Event {
    Nanos time;
    uint64_t number;
    Party* to;
    int child;
    FrameHeader header;
    std::vector<std::byte> payload;
    bool operator<(const Event& other) const {  // puts the first event on top of the queue
      return std::pair(time, number) > std::pair(other.time, other.number);
    }
  };

  bool chance(double part) { return std::uniform_real_distribution<>()(random_) < part; }

  const Weather weather_;
  std::mt19937 random_;
  Nanos now_ = 0;
  uint64_t count_ = 0;
  std::priority_queue<Event> events_;
};

class Switch final : public Party, public Outlet {
 public:
  Switch(Network* network, const SlotTableOptions& options, Party* parent, int place)
      : network_(network), parent_(parent), place_(place), table_(options, this) {}

  void add_child(Party* child) { children_.push_back(child); }
  const SlotTableCounters& counters() const { return table_.counters(); }

  void receive(int child, const Frame& frame, Nanos /*now*/) override {
    if (child < 0) {
      table_.from_parent(frame);
    } else {
      table_.from_child(child, frame);
    }
  }
  void to_parent(const FrameHeader& header, absl::Span<const std::byte> payload) override {
    network_->send(parent_, place_, header, payload);
  }
  void to_child(int child, const FrameHeader& header,
                absl::Span<const std::byte> payload) override {
    network_->send(children_[static_cast<size_t>(child)], -1, header, payload);
  }
  void to_children(const FrameHeader& header, absl::Span<const std::byte> payload) override {
    for (int child = 0; child < static_cast<int>(children_.size()); ++child) {
      to_child(child, header, payload);
    }
  }

 private:
  Network* const network_;
  Party* const parent_;
  const int place_;
  std::vector<Party*> children_;
  SlotTable table_;
};

class Host final : public Party {
 public:
  Host(Network* network, const Layout& layout, int rank, int ranks, Party* leaf, int place)
      : network_(network),
        rank_(rank),
        ranks_(ranks),
        leaf_(leaf),
        place_(place),
        offered_(layout.first_seq),
        end_(layout.first_seq + layout.blocks),
        window_(layout.window, layout.first_seq, {}) {}

  void receive(int /*child*/, const Frame& frame, Nanos now) override {
    const uint32_t seq = frame.header.block.seq;
    ASSERT_NE(frame.header.type, FrameType::kMismatch);
    if (const NumberRange lost = window_.lost_before(frame.header); lost.count > 0) {
      asked_for_ += lost.count;
      network_->send(leaf_, place_, {.type = FrameType::kLost, .number = window_.next_number()},
                     encode_lost(lost));
    }
    if (frame.header.type == FrameType::kLost) {
      window_.on_lost(decode_lost(frame.payload), now);
    } else if (frame.header.type == FrameType::kPending) {
      window_.on_pending(seq, now);
    } else if (window_.on_result(seq, now)) {
      Elements values(frame.payload.size() / sizeof(uint32_t));
      std::memcpy(values.data(), frame.payload.data(), frame.payload.size());
      ASSERT_EQ(values, expected(ranks_, seq)) << "rank " << rank_ << ", block " << seq;
      ASSERT_EQ(++results_[seq], 1);
    }
  }
  // Offers a few blocks at a time, and sends what is due.
  void act(std::mt19937& random, Nanos now) {
    if (window_.unfinished() < 3 && offered_ != end_) {
      const uint32_t count = std::min(end_ - offered_, 1 + static_cast<uint32_t>(random() % 10));
      ASSERT_EQ(window_.extend(count), offered_);
      offered_ += count;
    }
    while (const auto seq = window_.take_new(now)) send(*seq);
    while (const auto seq = window_.take_overdue(now)) send(*seq);
  }
  bool done() const { return offered_ == end_ && window_.unfinished() == 0; }
  size_t results() const { return results_.size(); }
  uint64_t resent() const { return window_.resent(); }
  uint64_t asked_for() const { return asked_for_; }

 private:
  void send(uint32_t seq) {
    const Elements values = contribution(rank_, seq);
    network_->send(leaf_, place_,
                   {.type = FrameType::kContribution,
                    .is_numbered = true,
                    .number = window_.number_of(seq),
                    .block = block_of(seq)},
                   {reinterpret_cast<const std::byte*>(values.data()), kBlockElements * 4});
  }

  Network* const network_;
  const int rank_;
  const int ranks_;
  Party* const leaf_;
  const int place_;
  uint32_t offered_;  // the first block that is not offered yet
  const uint32_t end_;
  Window window_;
  std::map<uint32_t, int> results_;
  uint64_t asked_for_ = 0;  // frames
};

// A run from the first block to the last.
class World {
 public:
  World(const Layout& layout, const Weather& weather, uint32_t seed)
      : layout_(layout), network_(weather, seed), random_(seed + 1) {
    const bool is_tree = layout.leaves.size() > 1;
    int ranks = 0;
    std::vector<RankRange> below;
    for (const int hosts : layout.leaves) {
      below.push_back({static_cast<uint16_t>(ranks), static_cast<uint16_t>(hosts)});
      ranks += hosts;
    }
    if (is_tree) add_switch(below, nullptr, 0);
    for (size_t leaf = 0; leaf < below.size(); ++leaf) {
      std::vector<RankRange> children;
      children.reserve(below[leaf].count);
      for (int i = 0; i < below[leaf].count; ++i) {
        children.push_back({static_cast<uint16_t>(below[leaf].first + i), 1});
      }
      Switch* root = is_tree ? switches_[0].get() : nullptr;
      Switch* at = add_switch(children, root, static_cast<int>(leaf));
      if (root != nullptr) root->add_child(at);
      for (int i = 0; i < below[leaf].count; ++i) {
        hosts_.push_back(
            std::make_unique<Host>(&network_, layout, below[leaf].first + i, ranks, at, i));
        at->add_child(hosts_.back().get());
      }
    }
  }

  // Every 50 µs each host acts with a probability of 3/4.
  void run() {
    constexpr Nanos kLook = 50 * kMicrosecond;
    constexpr Nanos kEnough = 3000 * kSecond;
    for (uint64_t look = 0; !std::all_of(hosts_.begin(), hosts_.end(), is_done); ++look) {
      ASSERT_LT(network_.now(), kEnough) << "it does not end";
      for (const auto& host : hosts_) {
        if (random_() % 4 != 0) host->act(random_, network_.now());
      }
      const Nanos end = network_.now() + kLook;
      while (network_.deliver(end)) {
      }
      if (::testing::Test::HasFatalFailure()) return;
    }
    while (!network_.empty()) network_.deliver(network_.now() + kSecond);  // late copies
    for (const auto& host : hosts_) ASSERT_EQ(host->results(), layout_.blocks);
    for (const auto& each : switches_) {
      EXPECT_EQ(each->counters().blocks, layout_.blocks);
      EXPECT_EQ(each->counters().violations, 0);
      EXPECT_EQ(each->counters().mismatches, 0);
    }
  }

  Nanos now() const { return network_.now(); }
  const std::vector<std::unique_ptr<Host>>& hosts() const { return hosts_; }
  const std::vector<std::unique_ptr<Switch>>& switches() const { return switches_; }

 private:
  static bool is_done(const std::unique_ptr<Host>& host) { return host->done(); }

  Switch* add_switch(const std::vector<RankRange>& children, Party* parent, int place) {
    const SlotTableOptions options{.window = layout_.window,
                                   .first_seq = layout_.first_seq,
                                   .children = children,
                                   .is_root = parent == nullptr,
                                   .payload = 16,
                                   .reproducible = layout_.reproducible};
    EXPECT_TRUE(check(options).ok());
    switches_.push_back(std::make_unique<Switch>(&network_, options, parent, place));
    return switches_.back().get();
  }

  const Layout layout_;
  Network network_;
  std::mt19937 random_;
  std::vector<std::unique_ptr<Switch>> switches_;  // the root comes first
  std::vector<std::unique_ptr<Host>> hosts_;
};

const std::vector<Layout> kLayouts = {
    {.leaves = {2}, .window = 1},     {.leaves = {3}, .window = 2, .reproducible = true},
    {.leaves = {8}, .window = 8},     {.leaves = {1, 1}, .window = 1},
    {.leaves = {2, 2}, .window = 2},  {.leaves = {4, 1, 3}, .window = 4, .reproducible = true},
    {.leaves = {2, 1}, .window = 32},  // with high loss, 8 of these may be in flight
};

class Protocol : public ::testing::TestWithParam<Layout> {};

TEST_P(Protocol, NothingIsSentAgainOverAGoodNetwork) {
  World world(GetParam(), {.jitter = 0}, 1);
  world.run();
  for (const auto& host : world.hosts()) EXPECT_EQ(host->resent(), 0);
  for (const auto& each : world.switches()) EXPECT_EQ(each->counters().stale, 0);
}

// Timeouts are the last resort; with them the run would take a hundred times as long.
TEST_P(Protocol, WhatIsLostIsAskedForAtOnce) {
  Layout layout = GetParam();
  layout.window = 32;
  layout.blocks = 20000;
  World world(layout, {.loss = 0.01, .jitter = 0}, 1);
  ASSERT_NO_FATAL_FAILURE(world.run());
  for (const auto& host : world.hosts()) {
    EXPECT_GT(host->asked_for(), 0);
    EXPECT_GT(host->resent(), 0);
  }
  EXPECT_LT(world.now(), 2 * kSecond);
}

TEST_P(Protocol, EachBlockArrivesOnceDespiteLossRepeatsAndDelays) {
  for (uint32_t seed = 0; seed < 4; ++seed) {
    for (const Weather& weather : {Weather{.loss = 0.01}, Weather{.loss = 0.2, .repeats = 0.1},
                                   Weather{.repeats = 0.3, .delays = 0.3},
                                   Weather{.loss = 0.1, .repeats = 0.3, .delays = 0.3}}) {
      SCOPED_TRACE(absl::StrCat("seed ", seed, ", loss ", weather.loss));
      World world(GetParam(), weather, seed);
      ASSERT_NO_FATAL_FAILURE(world.run());
    }
  }
}

TEST_P(Protocol, EachBlockArrivesOnceWhenSequenceNumbersWrap) {
  Layout layout = GetParam();
  layout.first_seq = 0xffffffff - layout.blocks / 2;
  for (uint32_t seed = 0; seed < 4; ++seed) {
    World world(layout, {.loss = 0.1, .repeats = 0.3, .delays = 0.3}, seed);
    ASSERT_NO_FATAL_FAILURE(world.run());
  }
}

std::string name_of(const ::testing::TestParamInfo<Layout>& layout) {
  std::string name = absl::StrCat("Window", layout.param.window, "Hosts");
  for (const int hosts : layout.param.leaves) absl::StrAppend(&name, "_", hosts);
  return name;
}
INSTANTIATE_TEST_SUITE_P(Layouts, Protocol, ::testing::ValuesIn(kLayouts), name_of);

}  // namespace
}  // namespace nezha::flare
