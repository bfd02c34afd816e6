// SPDX-License-Identifier: Apache-2.0
// Sends and receives of rank 0, to and from itself and two other ranks. In-memory links connect it
// to those.
#include "context/exchange.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "context/exchange_tasks.h"
#include "gtest/gtest.h"
#include "tests/unit/transport/fake_link.h"

namespace nezha {
namespace {

using testing::FakeNetwork;

constexpr uint64_t kTag = 7;
constexpr size_t kShort = 10;
constexpr size_t kLong = 1 << 20;  // elements: more than a rank accepts before it asks

// A send or a receive by one of the ranks.
struct Call final : TaskOwner {
  std::vector<uint32_t> memory;
  std::unique_ptr<Exchange> exchange;
  std::unique_ptr<Task> task;

  void on_finished(Task&) override {}
  bool is_done() const { return task->poll() == Task::State::kDone; }
  bool has_matched() const { return exchange->source() >= 0; }
};

class ExchangeTest : public ::testing::Test {
 protected:
  ExchangeTest() {
    auto made = Progress::create();
    EXPECT_TRUE(made.ok());
    progress_ = *std::move(made);
    guard_ = std::make_unique<Progress::Guard>(*progress_);
    for (const int rank : {0, 1, 2}) {
      Group& group = groups_[static_cast<size_t>(rank)];
      group.rank = rank;
      group.size = 3;
      group.context = FakeNetwork::kJob.low;
      group.channels.resize(3);
      group.pool = &pool_;
    }
    for (const int rank : {1, 2}) {
      const auto index = static_cast<size_t>(rank);
      auto& network = networks_[index - 1];
      network = std::make_unique<FakeNetwork>(*progress_, index, 2);
      groups_[0].channels[index] = &network->channel(0);
      groups_[index].channels[0] = &network->channel(1);
    }
  }
  ~ExchangeTest() override {
    calls_.clear();
    for (auto& network : networks_) network.reset();
    guard_.reset();
  }

  Call& start(int rank, Exchange::Terms terms, size_t elements, uint32_t value) {
    Call& call = *calls_.emplace_back(std::make_unique<Call>());
    call.memory.assign(elements, value);
    terms.rank = rank;
    terms.tag = kTag;
    terms.input = reinterpret_cast<const std::byte*>(call.memory.data());
    terms.output = reinterpret_cast<std::byte*>(call.memory.data());
    terms.bytes = elements * sizeof(uint32_t);
    const auto index = static_cast<size_t>(rank);
    call.exchange = std::make_unique<Exchange>(std::move(terms), loopbacks_[index]);
    auto task = call.exchange->start(groups_[index], {}, {}, call);
    EXPECT_TRUE(task.ok()) << task.status();
    call.task = *std::move(task);
    return call;
  }
  Call& send(int from, int to, uint32_t value, size_t elements = kShort) {
    return start(from, {.is_send = true, .peers = {to}}, elements, value);
  }
  // A receive by rank 0.
  Call& receive(std::vector<int> sources, size_t elements = kShort) {
    return start(0, {.is_send = false, .peers = std::move(sources)}, elements, 0);
  }
  // Delivers everything until nothing moves any more.
  void settle_down() {
    for (int i = 0; i < 2; ++i) {
      for (auto& network : networks_) network->settle_down();
    }
  }
  static void expect_message(const Call& call, int source, uint32_t value) {
    ASSERT_TRUE(call.is_done()) << call.task->describe();
    EXPECT_EQ(call.exchange->source(), source);
    EXPECT_EQ(std::count(call.memory.begin(), call.memory.end(), value),
              static_cast<std::ptrdiff_t>(call.memory.size()));
  }

  std::unique_ptr<Progress> progress_;
  std::unique_ptr<Progress::Guard> guard_;  // held throughout, so that no other thread drives
  BufferPool pool_;
  std::array<std::unique_ptr<FakeNetwork>, 2> networks_;  // to ranks 1 and 2
  std::array<Group, 3> groups_;
  std::array<Loopback, 3> loopbacks_;
  std::vector<std::unique_ptr<Call>> calls_;
};

TEST(Exchange, HasANameWithRanksTagAndSize) {
  Loopback loopback;
  const auto name = [&](const Exchange::Terms& terms) { return Exchange(terms, loopback).name(); };
  EXPECT_EQ(name({.peers = {3}, .tag = 7, .bytes = 400}), "send to rank 3 (tag 7, 400 bytes)");
  EXPECT_EQ(name({.is_send = false, .peers = {2}}), "recv from rank 2 (tag 0, 0 bytes)");
  EXPECT_EQ(name({.is_send = false, .peers = {2, 5, 1}}),
            "recv from any of ranks 2, 5 and 1 (tag 0, 0 bytes)");
  EXPECT_EQ(name({.is_send = false, .peers = {0, 1}, .is_from_any = true}),
            "recv from any rank (tag 0, 0 bytes)");
  std::vector<int> many(32);
  std::iota(many.begin(), many.end(), 0);
  EXPECT_EQ(names_of(many), "ranks 0, 1, 2, 3, 4, 5, 6, 7 and 24 others");
  many.resize(9);
  EXPECT_EQ(names_of(many), "ranks 0, 1, 2, 3, 4, 5, 6, 7 and 8");
}

TEST_F(ExchangeTest, AReceiveFromSeveralTakesOneMessageAndLeavesTheOthers) {
  for (const size_t elements : {size_t{0}, kShort, kLong}) {
    Call& first = receive({1, 2}, elements);
    send(2, 0, 20, elements);
    settle_down();
    send(1, 0, 10, elements);
    send(2, 0, 21, elements);
    settle_down();
    expect_message(first, 2, 20);
    Call& second = receive({2, 1}, elements);
    Call& third = receive({0, 1, 2}, elements);
    settle_down();
    expect_message(second, 2, 21);
    expect_message(third, 1, 10);
    EXPECT_TRUE(
        std::all_of(calls_.begin(), calls_.end(), [](auto& call) { return call->is_done(); }));
  }
}

TEST_F(ExchangeTest, AReceiveThatIsGivenUpTakesNoMessageOfAnyRank) {
  Call& given_up = receive({0, 1, 2});
  given_up.task->freeze();
  send(0, 0, 1);
  send(1, 0, 10);
  send(2, 0, 20);
  for (const int rank : {0, 1, 2}) {
    Call& next = receive({rank});
    settle_down();
    expect_message(next, rank, rank == 0 ? 1 : 10 * static_cast<uint32_t>(rank));
  }
  EXPECT_FALSE(given_up.has_matched());
}

TEST_F(ExchangeTest, ASendToOneselfThatIsGivenUpIsReceivedByNobody) {
  Call& given_up = send(0, 0, 1);
  given_up.task->freeze();
  Call& receiver = receive({0});
  EXPECT_FALSE(receiver.has_matched());
  send(0, 0, 2);
  expect_message(receiver, 0, 2);
}

TEST_F(ExchangeTest, SizesThatDifferFailTheReceiveAndNameBothRanks) {
  for (const int source : {0, 1}) {
    Call& receiver = receive({source}, kShort);
    send(source, 0, 1, kShort + 1);
    settle_down();
    ASSERT_EQ(receiver.task->poll(), Task::State::kFailed);
    const std::string text(receiver.task->status().message());
    const std::string begin =
        "rank " + std::to_string(source) + " sends 44 bytes to rank 0 by the tag 7";
    EXPECT_EQ(text.substr(0, begin.size()), begin);
    EXPECT_NE(text.find("rank 0 has called recv for 40 bytes"), std::string::npos) << text;
  }
}

// A process that ends by exit() says goodbye and closes no context. It may have closed the context
// before, on a link that then died before the frame arrived.
TEST_F(ExchangeTest, AReceiveFromSeveralGoesOnWithoutARankThatHasSaidGoodbye) {
  send(1, 0, 10);
  receive({1});
  Call& receiver = receive({1, 2});
  settle_down();
  networks_[0]->channel(1).say_goodbye();
  settle_down();
  EXPECT_EQ(receiver.task->poll(), Task::State::kRunning);
  networks_[0]->allow = [](int, Rail) { return false; };
  for (const Rail rail : {0, 1}) {
    ASSERT_NE(networks_[0]->connection(rail), nullptr);
    networks_[0]->break_connection(*networks_[0]->connection(rail), /*silent=*/false);
  }
  settle_down();
  ASSERT_TRUE(networks_[0]->channel(0).failed());
  EXPECT_EQ(receiver.task->poll(), Task::State::kRunning) << receiver.task->status();
  send(2, 0, 20);
  settle_down();
  expect_message(receiver, 2, 20);
  Call& alone = receive({1});
  settle_down();
  EXPECT_EQ(alone.task->poll(), Task::State::kFailed);
}

TEST_F(ExchangeTest, SaysWhomItWaitsFor) {
  EXPECT_EQ(receive({1}).task->describe().find("rank 1 has sent nothing by the tag 7 ("), 0u);
  EXPECT_EQ(receive({1, 0, 2}).task->describe().find(
                "ranks 1, 0 and 2 have sent nothing by the tag 7 (rank 1: "),
            0u);
  Call& sender = send(0, 2, 1, kLong);
  settle_down();
  EXPECT_EQ(sender.task->describe().find("rank 2 has not asked for it ("), 0u);
  Call& own = send(1, 1, 1);
  EXPECT_EQ(own.task->describe(), "rank 1 has not asked for it");
}

// Random sends and receives of all kinds, while messages arrive in any order. Each message of a
// rank must match the first receive that accepts it (MPI 4.0, section 3.5).
class ExchangeOrderTest : public ExchangeTest, public ::testing::WithParamInterface<uint64_t> {
 protected:
  // The first kEach receives may all name the same rank, so each rank sends as many messages. The
  // later receives take the remaining messages from any rank.
  static constexpr size_t kEach = 60;
  static constexpr size_t kAll = 3 * kEach;

  // Checks that no receive was overtaken: an earlier receive that accepts a rank's messages must
  // match before a later one that has a message of that rank.
  void check_new_matches() {
    for (size_t i = 0; i < receives_.size(); ++i) {
      if (is_known_[i] || !receives_[i]->has_matched()) continue;
      is_known_[i] = true;
      const int source = receives_[i]->exchange->source();
      for (size_t earlier = 0; earlier < i; ++earlier) {
        const auto& its = receives_[earlier]->exchange->terms().peers;
        const bool takes = std::find(its.begin(), its.end(), source) != its.end();
        EXPECT_TRUE(is_known_[earlier] || !takes) << i << " has overtaken " << earlier;
      }
    }
  }

  std::vector<Call*> receives_;
  std::array<bool, kAll> is_known_{};
};

TEST_P(ExchangeOrderTest, MessagesMatchInTheOrderOfTheCallsAsMpiHasIt) {
  const std::vector<std::vector<int>> kinds{{0}, {1}, {2}, {0, 1}, {2, 1}, {1, 0, 2}};
  std::mt19937_64 random(GetParam());
  const size_t elements = GetParam() % 4 == 0 ? 20'000 : kShort;
  std::vector<int> senders;
  for (const int rank : {0, 1, 2}) senders.insert(senders.end(), kEach, rank);
  std::shuffle(senders.begin(), senders.end(), random);
  std::array<uint32_t, 3> sent{}, received{};
  while (!senders.empty() || receives_.size() < kAll) {
    const uint64_t chance = random() % 4;
    if (chance == 0 && !senders.empty()) {
      const int from = senders.back();
      senders.pop_back();
      send(from, 0, sent[static_cast<size_t>(from)]++, elements);
    } else if (chance == 1 && receives_.size() < kAll) {
      const bool is_any = receives_.size() >= kEach;
      receives_.push_back(&receive(is_any ? kinds.back() : kinds[random() % 6], elements));
    } else {
      networks_[random() % 2]->step();
      progress_->run_deferred();
    }
    check_new_matches();
  }
  settle_down();
  check_new_matches();
  for (const Call* call : receives_) {
    const auto source = static_cast<size_t>(std::max(0, call->exchange->source()));
    expect_message(*call, static_cast<int>(source), received[source]++);
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, ExchangeOrderTest, ::testing::Range<uint64_t>(1, 25));

}  // namespace
}  // namespace nezha
