// SPDX-License-Identifier: Apache-2.0
#include "context/starter.h"

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "context/directory.h"
#include "context/exchange_tasks.h"
#include "gtest/gtest.h"
#include "tests/unit/context/operation_fixture.h"

namespace nezha {
namespace {

constexpr uint64_t kStarterTag = 7;

// No rank has published its record.
struct EmptyDirectory final : Directory {
  absl::Status publish(int, const Record&) override { return absl::OkStatus(); }
  absl::Status confirm(int, const Record&) override { return absl::OkStatus(); }
  void refuse(int, absl::string_view) override {}
  absl::StatusOr<Record> read(int, Nanos, const std::function<absl::Status()>&) override {
    return absl::UnavailableError("nobody has published");
  }
};

struct OwnerOfStarter final : StarterOwner {
  std::vector<int> unknown_peers(const RunningOperation&) const override { return unknown; }
  void launch(const std::shared_ptr<RunningOperation>& operation) override {
    launched.push_back(operation);
  }
  void set_up() override { ++set_ups; }
  void on_failed(const absl::Status& why) override {
    failure = why;
    for (const auto& operation : waiting) operation->fail(why);
  }

  std::vector<int> unknown;  // of each operation
  std::vector<std::shared_ptr<RunningOperation>> waiting, launched;
  std::atomic<int> set_ups = 0;
  absl::Status failure;
};

class StarterTest : public testing::OperationFixture {
 protected:
  StarterTest() {
    setup_.directory = std::make_shared<EmptyDirectory>();
    roster_.form();
  }
  ~StarterTest() override {
    starter_.close();
    without_lock([this] { starter_.join(); });
  }

  std::shared_ptr<RunningOperation> exchange(bool is_send, std::vector<int> peers,
                                             uint64_t tag = kStarterTag) {
    Request request = allreduce();
    request.exchange = std::make_shared<Exchange>(
        Exchange::Terms{.is_send = is_send, .peers = std::move(peers), .tag = tag}, loopback_);
    return begin(std::move(request));
  }
  std::shared_ptr<RunningOperation> add() {
    owner_of_starter_.waiting.push_back(begin(allreduce()));
    starter_.add(owner_of_starter_.waiting.back());
    return owner_of_starter_.waiting.back();
  }
  // Waits until the starter's thread has nothing left to do.
  void settle() {
    without_lock([this] { starter_.join(); });
  }

  Loopback loopback_;
  Roster roster_{setup_, [] { return absl::OkStatus(); }};
  OwnerOfStarter owner_of_starter_;
  Starter starter_{setup_, roster_, owner_of_starter_};
};

TEST_F(StarterTest, ACollectiveWaitsBehindAll) {
  WaitingOrder order;
  EXPECT_TRUE(order.lets_pass(*begin(allreduce())));
  order.add(*exchange(true, {1}));
  EXPECT_FALSE(order.lets_pass(*begin(allreduce())));
}

TEST_F(StarterTest, AnExchangeWaitsBehindThoseWithItsPeerAndTag) {
  WaitingOrder order;
  order.add(*exchange(true, {1}));
  EXPECT_FALSE(order.lets_pass(*exchange(true, {1})));
  EXPECT_TRUE(order.lets_pass(*exchange(false, {1}))) << "a receive";
  EXPECT_TRUE(order.lets_pass(*exchange(true, {0}))) << "another peer";
  EXPECT_TRUE(order.lets_pass(*exchange(true, {1}, kStarterTag + 1))) << "another tag";
  order.add(*exchange(false, {0}));
  EXPECT_FALSE(order.lets_pass(*exchange(false, {0, 1}))) << "one of its sources";
}

TEST_F(StarterTest, OperationsStartInTheirOrderOnceTheirPeersAreKnown) {
  const auto first = add();
  const auto second = add();
  EXPECT_TRUE(starter_.holds(first->id()));
  EXPECT_FALSE(starter_.lets_pass(*begin(allreduce())));
  settle();
  EXPECT_EQ(owner_of_starter_.launched, (std::vector{first, second}));
  EXPECT_FALSE(starter_.holds(first->id()));
  EXPECT_TRUE(starter_.lets_pass(*begin(allreduce())));
}

TEST_F(StarterTest, APeerThatIsNotFoundFailsTheContext) {
  owner_of_starter_.unknown = {1};
  const auto operation = add();
  settle();
  EXPECT_NE(owner_of_starter_.failure.message().find("nobody has published"), std::string::npos)
      << owner_of_starter_.failure;
  EXPECT_TRUE(operation->over());
  EXPECT_TRUE(owner_of_starter_.launched.empty());
  EXPECT_FALSE(starter_.holds(operation->id()));
}

TEST_F(StarterTest, SetsUpOnceForEachWish) {
  starter_.want_set_up();
  starter_.want_set_up();
  settle();
  EXPECT_EQ(owner_of_starter_.set_ups, 1);
  starter_.want_set_up();
  settle();
  EXPECT_EQ(owner_of_starter_.set_ups, 2);
}

TEST_F(StarterTest, StartsNothingOnceItIsClosed) {
  starter_.close();
  const auto operation = add();
  settle();
  EXPECT_TRUE(owner_of_starter_.launched.empty());
  EXPECT_TRUE(starter_.holds(operation->id()));
}

}  // namespace
}  // namespace nezha
