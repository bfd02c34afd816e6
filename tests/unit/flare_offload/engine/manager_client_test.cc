// SPDX-License-Identifier: Apache-2.0
// A rank's connection to a manager whose part the test plays.
#include "flare_offload/engine/manager_client.h"

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "tests/unit/flare_offload/stage.h"

namespace nezha::flare {
namespace {

constexpr Nanos kLease = 3 * kSecond;
constexpr Nanos kQuickly = 10 * kMillisecond;  // in each round

class ManagerClientTest : public ::testing::Test {
 protected:
  ManagerClientTest() { open("lo"); }

  void open(const std::string& interface) {
    client_ = std::make_unique<ManagerClient>(
        stage_.progress(), interface, address_, test_secret(),
        ManagerClient::Callbacks{
            .on_granted = [this](const message::Granted& it) { granted_.push_back(it); },
            .on_rejected = [this](
                               uint32_t attempt,
                               const absl::Status& why) { rejected_.emplace_back(attempt, why); },
            .on_lost = [this](uint32_t attempt,
                              const std::string& why) { lost_.emplace_back(attempt, why); }});
    client_->set_local(*Address::parse("127.0.0.1:5"));
  }
  static message::Join join_of(uint32_t attempt) {
    return {.request = {{1, 2}, attempt},
            .rank = 1,
            .size = 4,
            .address = *Address::parse("127.0.0.1:7200"),
            .payload = 1440,
            .window = 32,
            .streams = 2};
  }
  static message::Granted grant_of(uint32_t attempt) {
    return {.request = {{1, 2}, attempt},
            .session = 40 + attempt,
            .streams = 2,
            .address = *Address::parse("127.0.0.1:7100"),
            .window = 32,
            .payload = 1440,
            .lease = kLease,
            .group = Address::parse("239.192.0.1:7100").value()};
  }
  // Asks, and waits until the manager has heard of it.
  void join(uint32_t attempt) {
    const size_t before = manager_->count<message::Join>();
    client_->join(join_of(attempt));
    ASSERT_TRUE(stage_.until([&] { return manager_->count<message::Join>() > before; }));
  }
  void join_and_grant(uint32_t attempt) {
    ASSERT_NO_FATAL_FAILURE(join(attempt));
    const size_t before = granted_.size();
    manager_->peer().send(grant_of(attempt));
    ASSERT_TRUE(stage_.until([&] { return granted_.size() > before; }));
  }
  void restart_manager(const Secret& secret = test_secret()) {
    manager_.reset();
    manager_ =
        std::make_unique<FakeService>(stage_, SecureStream::Service::kManager, secret, address_);
  }

  Stage stage_;
  std::unique_ptr<FakeService> manager_ =
      std::make_unique<FakeService>(stage_, SecureStream::Service::kManager);
  const Address address_ = manager_->address();
  std::vector<message::Granted> granted_;
  std::vector<std::pair<uint32_t, absl::Status>> rejected_;
  std::vector<std::pair<uint32_t, std::string>> lost_;
  std::unique_ptr<ManagerClient> client_;
};

TEST_F(ManagerClientTest, AsksForASessionAndPassesOnTheGrant) {
  client_->set_local(*Address::parse("127.0.0.9:5"));
  ASSERT_NO_FATAL_FAILURE(join(3));
  EXPECT_EQ(manager_->peer().from.host(), "127.0.0.9");
  const message::Join asked = manager_->got<message::Join>()[0];
  EXPECT_EQ(asked.request, join_of(3).request);
  EXPECT_EQ(asked.rank, 1);
  EXPECT_TRUE(asked.address == join_of(3).address);
  EXPECT_TRUE(granted_.empty());
  manager_->peer().send(grant_of(2));  // of an earlier attempt
  manager_->peer().connection->send("words of a later version");
  manager_->peer().send(grant_of(3));
  manager_->peer().send(grant_of(3));
  manager_->peer().send(message::Lost{grant_of(3).request, "the last message"});
  ASSERT_TRUE(stage_.until([&] { return !lost_.empty(); }));
  ASSERT_EQ(granted_.size(), 1U);
  EXPECT_EQ(granted_[0].session, 43U);
}

TEST_F(ManagerClientTest, PassesOnThatTheManagerRejects) {
  ASSERT_NO_FATAL_FAILURE(join(3));
  manager_->peer().send(message::Rejected{{{1, 2}, 2}, "an old one"});
  manager_->peer().send(message::Rejected{{{1, 2}, 3}, "no room"});
  manager_->peer().send(grant_of(3));  // it changes its mind
  ASSERT_TRUE(stage_.until([&] { return !rejected_.empty(); }));
  ASSERT_NO_FATAL_FAILURE(join_and_grant(4));
  ASSERT_EQ(rejected_.size(), 1U);
  EXPECT_EQ(rejected_[0].first, 3U);
  EXPECT_EQ(rejected_[0].second, absl::UnavailableError("no room"));
  ASSERT_EQ(granted_.size(), 1U);
  EXPECT_EQ(granted_[0].request.attempt, 4U);
  EXPECT_EQ(manager_->connections(), 1U);
}

TEST_F(ManagerClientTest, RenewsTheLeaseBeforeItRunsOut) {
  ASSERT_NO_FATAL_FAILURE(join_and_grant(3));
  const Nanos begin = now();
  ASSERT_TRUE(stage_.until([&] { return manager_->count<message::Renew>() >= 5; }, kMillisecond));
  EXPECT_LT(now() - begin, 5 * kLease);
  const message::Renew renewed = manager_->got<message::Renew>()[0];
  EXPECT_EQ(renewed.request, grant_of(3).request);
  EXPECT_EQ(renewed.rank, 1);
  EXPECT_EQ(renewed.size, 4);
  EXPECT_EQ(renewed.session, 43U);
  EXPECT_EQ(renewed.streams, 2);
  EXPECT_TRUE(renewed.group && *renewed.group == *grant_of(3).group);
}

TEST_F(ManagerClientTest, ComesBackToAManagerThatHasStartedAgain) {
  ASSERT_NO_FATAL_FAILURE(join_and_grant(3));
  restart_manager();
  const Nanos begin = now();
  ASSERT_TRUE(stage_.until([&] { return manager_->count<message::Renew>() > 0; }, kQuickly));
  EXPECT_LT(now() - begin, kLease);
  EXPECT_EQ(manager_->count<message::Join>(), 0U);
  manager_->peer().send(message::Lost{grant_of(3).request, "what session?"});
  ASSERT_TRUE(stage_.until([&] { return !lost_.empty(); }));
  EXPECT_EQ(lost_[0], (std::pair<uint32_t, std::string>(3, "what session?")));
  stage_.pass(2 * kLease);
  ASSERT_NO_FATAL_FAILURE(join_and_grant(4));
  EXPECT_EQ(manager_->count<message::Renew>(), 1U) << "nothing is left to renew";
  EXPECT_TRUE(rejected_.empty());
}

TEST_F(ManagerClientTest, GivesTheSessionBackWhenItLeavesAsksAnewOrEnds) {
  ASSERT_NO_FATAL_FAILURE(join_and_grant(3));
  ASSERT_NO_FATAL_FAILURE(join_and_grant(4));
  ASSERT_EQ(manager_->count<message::Leave>(), 1U);
  EXPECT_EQ(manager_->got<message::Leave>()[0].request.attempt, 3U);
  client_->leave();
  client_->leave();
  manager_->peer().send(message::Lost{grant_of(4).request, "too late"});
  ASSERT_NO_FATAL_FAILURE(join_and_grant(5));
  EXPECT_TRUE(lost_.empty());
  EXPECT_EQ(manager_->count<message::Leave>(), 2U);
  client_.reset();
  ASSERT_TRUE(stage_.until([&] { return manager_->count<message::Leave>() == 3; }));
  EXPECT_EQ(manager_->got<message::Leave>()[2].request.attempt, 5U);
  EXPECT_EQ(manager_->got<message::Leave>()[2].rank, 1);
  EXPECT_EQ(manager_->connections(), 1U);
}

TEST_F(ManagerClientTest, FindsAManagerThatStartsLater) {
  manager_.reset();
  client_->join(join_of(3));
  stage_.pass(kSecond);
  restart_manager();
  ASSERT_TRUE(stage_.until([&] { return manager_->count<message::Join>() > 0; }, kQuickly));
  manager_->peer().send(grant_of(3));
  ASSERT_TRUE(stage_.until([&] { return !granted_.empty(); }));
  EXPECT_TRUE(rejected_.empty());
}

TEST_F(ManagerClientTest, SaysWhyAManagerCannotBeReached) {
  manager_.reset();
  client_->join(join_of(3));
  ASSERT_TRUE(stage_.until([&] { return !rejected_.empty(); }, kQuickly));
  EXPECT_EQ(rejected_[0].first, 3U);
  EXPECT_EQ(rejected_[0].second.code(), absl::StatusCode::kUnavailable);
  const std::string why(rejected_[0].second.message());
  EXPECT_TRUE(says(why, address_.str() + " cannot be reached through lo: "));
  EXPECT_TRUE(says(why, "refused"));
  open("no-such-card");
  client_->join(join_of(4));
  ASSERT_TRUE(stage_.until([&] { return rejected_.size() > 1; }, kQuickly));
  EXPECT_TRUE(says(rejected_[1].second.message(), "no-such-card"));
}

TEST_F(ManagerClientTest, GivesUpAManagerThatDoesNotAnswerAndConnectsAnew) {
  ASSERT_NO_FATAL_FAILURE(join(3));
  ASSERT_TRUE(stage_.until([&] { return !rejected_.empty(); }, 10 * kQuickly));
  EXPECT_TRUE(says(rejected_[0].second.message(), "has given no session in time"));
  ASSERT_TRUE(stage_.until([&] { return manager_->count<message::Leave>() == 1; }));
  ASSERT_NO_FATAL_FAILURE(join_and_grant(4));
  EXPECT_EQ(manager_->connections(), 2U);
  EXPECT_EQ(rejected_.size(), 1U);
}

TEST_F(ManagerClientTest, SaysAtOnceThatTheManagerHasAnotherSecret) {
  restart_manager(test_secret(99));
  client_->join(join_of(3));
  ASSERT_TRUE(stage_.until([&] { return !rejected_.empty(); }));
  EXPECT_EQ(rejected_[0].first, 3U);
  EXPECT_EQ(rejected_[0].second.code(), absl::StatusCode::kUnauthenticated);
  for (const char* words : {"rank 1 of 4", "NEZHA_FLARE_SECRET", "--secret"}) {
    EXPECT_TRUE(says(rejected_[0].second.message(), words));
  }
  restart_manager();
  ASSERT_NO_FATAL_FAILURE(join_and_grant(4));
}

// A session goes on while its manager is mistaken.
TEST_F(ManagerClientTest, KeepsASessionWhileTheManagerHasAnotherSecret) {
  ASSERT_NO_FATAL_FAILURE(join_and_grant(3));
  restart_manager(test_secret(99));
  ASSERT_TRUE(stage_.until([&] { return manager_->connections() >= 3; }, kQuickly));
  restart_manager();
  ASSERT_TRUE(stage_.until([&] { return manager_->count<message::Renew>() > 0; }, kQuickly));
  EXPECT_TRUE(rejected_.empty());
  EXPECT_TRUE(lost_.empty());
}

}  // namespace
}  // namespace nezha::flare
