// SPDX-License-Identifier: Apache-2.0
// What a manager does with what hosts and switches tell it. How sessions are made, kept and lost is
// in sessions_test.cc.
#include "flare_offload/manager/manager.h"

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tests/unit/flare_offload/manager/managed_fabric.h"

namespace nezha::flare {
namespace {

class ManagerTest : public ManagedFabric {};

TEST_F(ManagerTest, TellsItsSwitchesAndSessions) {
  ASSERT_NO_FATAL_FAILURE(start(1, kTwoHosts));
  const std::string switches = R"({"switches": [{"name": "s0", "up": true}], "jobs": [)";
  EXPECT_EQ(manager_->statistics(), switches + "]}");
  const Hosts hosts = ask(job(1, 3), kTwo);
  ASSERT_TRUE(all_granted(hosts));
  EXPECT_EQ(manager_->statistics(),
            absl::StrCat(switches, R"({"job": ")", job(1).job.str(),
                         R"(", "attempt": 3, "up": true, "ranks": 2, "session": )",
                         hosts[0]->granted[0].session, R"(, "tree": ["s0"]}]})"));
}

TEST_F(ManagerTest, AnAddressThatIsInUseIsAnError) {
  ASSERT_NO_FATAL_FAILURE(start(1, kTwoHosts));
  Manager other(stage_.progress(), options_, test_secret());
  EXPECT_TRUE(says(other.listen(address_).ToString(), address_.str()));
}

// ---- Asking ------------------------------------------------------------------------------------

TEST_F(ManagerTest, RanksThatWantDifferentSessionsGetNone) {
  ASSERT_NO_FATAL_FAILURE(start(1, kTwoHosts));
  Hosts hosts;
  for (const int rank : {0, 1}) {
    message::Join join = join_of(job(1), rank, kTwo);
    join.streams += rank;
    hosts.push_back(std::make_unique<ManagedHost>(stage_, address_));
    hosts.back()->send(join);
  }
  EXPECT_TRUE(says(why_rejected(hosts), "asks for another session than others"));
  EXPECT_TRUE(at(0).specs.empty());
}

TEST_F(ManagerTest, ARankThatAsksTwiceIsAnsweredWhereItAskedLast) {
  ASSERT_NO_FATAL_FAILURE(start(1, kTwoHosts));
  const auto first = ask_as(0, job(1));
  ASSERT_NO_FATAL_FAILURE(handle_all_of(*first));
  Hosts hosts;
  hosts.push_back(ask_as(0, job(1)));
  ASSERT_NO_FATAL_FAILURE(handle_all_of(*hosts[0]));
  hosts.push_back(ask_as(1, job(1)));
  ASSERT_TRUE(all_granted(hosts));
  ASSERT_NO_FATAL_FAILURE(handle_all_of(*first));
  EXPECT_TRUE(first->granted.empty() && first->rejected.empty());
  EXPECT_EQ(at(0).specs.size(), 1U);
}

TEST_F(ManagerTest, ASessionThatIsThereIsNotGivenAgain) {
  ASSERT_NO_FATAL_FAILURE(start(1, kTwoHosts));
  const Hosts hosts = ask(job(1), kTwo);
  ASSERT_TRUE(all_granted(hosts));
  const std::string before = manager_->statistics();
  const auto again = ask_as(0, job(1));
  ASSERT_TRUE(stage_.until([&] { return !again->rejected.empty(); }));
  EXPECT_EQ(again->rejected[0], "the session is installed already");
  EXPECT_EQ(manager_->statistics(), before);
  EXPECT_TRUE(hosts[0]->rejected.empty() && hosts[0]->lost.empty());
}

TEST_F(ManagerTest, ALaterAttemptEndsTheEarlierOne) {
  ASSERT_NO_FATAL_FAILURE(start(1, kTwoHosts));
  Hosts hosts = ask(job(1, 1), kTwo);
  ASSERT_TRUE(all_granted(hosts));
  const Hosts again = ask(job(1, 2), kTwo);
  ASSERT_TRUE(all_granted(again));
  EXPECT_TRUE(says(why_lost(*hosts[1]), "ask for another session"));
  EXPECT_TRUE(is_removed(0, hosts[0]->granted[0]));
  EXPECT_NE(again[0]->granted[0].session, hosts[0]->granted[0].session);
  EXPECT_NE(again[0]->granted[0].key, hosts[0]->granted[0].key);
}

// ---- Hosts that go -----------------------------------------------------------------------------

TEST_F(ManagerTest, ASessionIsOverWhenAllRanksHaveLeft) {
  ASSERT_NO_FATAL_FAILURE(start(1, kTwoHosts));
  Hosts hosts = ask(job(1), kTwo);
  ASSERT_TRUE(all_granted(hosts));
  hosts[0]->send(message::Leave{job(1), 0});
  for (int i = 0; i < 100; ++i) stage_.round();
  EXPECT_EQ(at(0).service.count<message::Remove>(), 0U) << "rank 1 may need results yet";
  hosts[1]->send(message::Leave{job(1), 1});
  EXPECT_TRUE(is_removed(0, hosts[0]->granted[0]));
  EXPECT_TRUE(hosts[1]->lost.empty());
}

TEST_F(ManagerTest, ARankThatLeavesBeforeTheOthersHaveAskedEndsTheRequest) {
  ASSERT_NO_FATAL_FAILURE(start(1, kTwoHosts));
  const std::vector<std::string> three{kTwo[0], kTwo[1], "10.9.1.3"};
  Hosts hosts;
  for (const int rank : {0, 1}) {
    hosts.push_back(std::make_unique<ManagedHost>(stage_, address_));
    hosts.back()->send(join_of(job(1), rank, three));
    ASSERT_NO_FATAL_FAILURE(handle_all_of(*hosts.back()));
  }
  hosts[1]->send(message::Leave{job(1), 1});
  EXPECT_EQ(why_rejected(hosts), "rank 1 has left");
}

TEST_F(ManagerTest, AHostThatHasGoneMayComeBack) {
  ASSERT_NO_FATAL_FAILURE(start(1, kTwoHosts));
  Hosts hosts = ask(job(1), kTwo);
  ASSERT_TRUE(all_granted(hosts));
  const message::Granted granted = hosts[1]->granted[0];
  hosts[1].reset();
  stage_.pass(options_.lease / 2);
  ManagedHost back(stage_, address_);
  back.send(renewal(granted, 1, 2));
  ASSERT_NO_FATAL_FAILURE(handle_all_of(back));
  EXPECT_EQ(why_lost(back, kInEachRound), "the lease of rank 0 has run out");
}

TEST_F(ManagerTest, AHostThatIsGoneBeforeItsSessionIsThereHasALeaseToo) {
  ASSERT_NO_FATAL_FAILURE(start(1, kTwoHosts));
  auto gone = ask_as(0, job(1));
  ASSERT_NO_FATAL_FAILURE(handle_all_of(*gone));
  gone.reset();
  for (int i = 0; i < 100; ++i) stage_.round();
  const auto host = ask_as(1, job(1));
  ASSERT_TRUE(stage_.until([&] { return !host->granted.empty(); }));
  const auto renew = [&] {
    host->send(renewal(host->granted[0], 1, 2));
    return !host->lost.empty();
  };
  ASSERT_TRUE(stage_.until(renew, 100 * kMillisecond));
  EXPECT_EQ(host->lost[0], "the lease of rank 0 has run out");
}

// ---- Switches ----------------------------------------------------------------------------------

TEST_F(ManagerTest, ASessionIsLostIfItsSwitchSaysSoOrHasForgottenIt) {
  ASSERT_NO_FATAL_FAILURE(start(1, kTwoHosts));
  Hosts hosts = ask(job(1), kTwo);
  ASSERT_TRUE(all_granted(hosts));
  at(0).service.peer().send(message::Expired{{hosts[0]->granted[0].session}});
  EXPECT_EQ(why_lost(*hosts[0]), "its lease on s0 has run out");

  hosts = ask(job(2), kTwo);
  ASSERT_TRUE(all_granted(hosts));
  const uint32_t session = hosts[0]->granted[0].session;
  at(0).has.sessions = {session, session + 1};
  const auto reconnect = [&] {
    const size_t before = at(0).service.connections();
    at(0).service.hang_up();
    ASSERT_TRUE(stage_.until([&] { return at(0).service.connections() > before; }, kInEachRound));
    await_switches();
  };
  ASSERT_NO_FATAL_FAILURE(reconnect());  // the connection broke, and the switch is as it was
  for (int i = 0; i < 100; ++i) stage_.round();
  EXPECT_TRUE(hosts[0]->lost.empty());
  at(0).has.sessions = {};
  ASSERT_NO_FATAL_FAILURE(reconnect());
  EXPECT_EQ(why_lost(*hosts[0]), "s0 has started again");
}

TEST_F(ManagerTest, AnotherManagerTakesOverWhatTheSwitchesHave) {
  ASSERT_NO_FATAL_FAILURE(start(1, absl::StrCat(kTwoHosts, "multicast 239.192.5.1:7300 1\n")));
  Hosts hosts = ask(job(1), kTwo);
  ASSERT_TRUE(all_granted(hosts));
  const message::Granted granted = hosts[0]->granted[0];
  at(0).has.sessions = {granted.session, granted.session + 1};
  hosts.clear();
  ASSERT_NO_FATAL_FAILURE(start_manager());
  ManagedHost one(stage_, address_);
  one.send(renewal(granted, 0, 2));
  ASSERT_TRUE(stage_.until([&] { return says(manager_->statistics(), job(1).job.str()); }));
  message::Renew unknown = renewal(granted, 0, 2);
  unknown.request = job(5);
  unknown.session = granted.session + 2;
  ManagedHost other(stage_, address_);
  other.send(unknown);
  EXPECT_EQ(why_lost(other), "the manager knows of no such session");
  const Hosts next = ask(job(2), kTwo);
  ASSERT_TRUE(all_granted(next));
  EXPECT_FALSE(next[0]->granted[0].group) << "the group is taken over, too";
  EXPECT_TRUE(one.lost.empty());
  EXPECT_TRUE(says(why_lost(one, kInEachRound), "has run out")) << "rank 1 does not come back";
}

// Until all switches have answered, any of them may have the session.
TEST_F(ManagerTest, KnowsThatThereIsNoSuchSessionOnceTheSwitchesHadTimeToAnswer) {
  ASSERT_NO_FATAL_FAILURE(start(2, kTwoHosts));
  switches_.pop_back();
  start_manager_alone();
  ASSERT_TRUE(stage_.until([&] { return says(manager_->statistics(), R"("s0", "up": true)"); }));
  ManagedHost host(stage_, address_);
  const message::Renew renew{.request = job(1), .size = 1, .session = 1, .streams = 1};
  host.send(renew);
  for (int i = 0; i < 100; ++i) stage_.round();
  EXPECT_TRUE(host.lost.empty());
  stage_.pass(options_.lease / 2);
  host.send(renew);
  EXPECT_EQ(why_lost(host), "the manager knows of no such session");
}

}  // namespace
}  // namespace nezha::flare
