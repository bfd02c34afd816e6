// SPDX-License-Identifier: Apache-2.0
// How jobs get sessions of a manager, keep them and lose them: sessions.cc.
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tests/unit/flare_offload/manager/managed_fabric.h"

namespace nezha::flare {
namespace {

class SessionsTest : public ManagedFabric {};

// ---- Getting a session -------------------------------------------------------------------------

TEST_F(SessionsTest, RanksGetASessionOnceAllHaveAsked) {
  ASSERT_NO_FATAL_FAILURE(start(1, kTwoHosts));
  Hosts hosts = ask(job(1), {kTwo[0], kTwo[1]});
  ASSERT_TRUE(all_granted(hosts));
  ASSERT_EQ(at(0).specs.size(), 1U);
  const SessionSpec& spec = at(0).specs[0];
  ASSERT_EQ(spec.children.size(), 2U);
  EXPECT_FALSE(spec.parent || spec.group);
  for (size_t rank = 0; rank < 2; ++rank) {
    EXPECT_EQ(spec.children[rank].str(), absl::StrCat(kTwo[rank], ":", 7200 + rank));
    EXPECT_EQ(spec.table.children[rank], (RankRange{static_cast<uint16_t>(rank), 1}));
    const message::Granted& granted = hosts[rank]->granted[0];
    EXPECT_EQ(granted.session, spec.session);
    EXPECT_EQ(granted.generation, spec.generation);
    EXPECT_EQ(granted.key, spec.key);
    EXPECT_EQ(granted.child, rank);
    EXPECT_EQ(granted.streams, 2);
    EXPECT_EQ(granted.window, 32U);
    EXPECT_EQ(granted.payload, 1440U);
    EXPECT_EQ(granted.lease, options_.lease);
    EXPECT_TRUE(granted.address == data_of(0));
  }
  EXPECT_EQ(at(0).service.got<message::Install>()[0].streams, 2);
}

TEST_F(SessionsTest, TheSessionFitsTheRankThatCanDoLeast) {
  ASSERT_NO_FATAL_FAILURE(start(1, kTwoHosts));
  ManagedHost one(stage_, address_);
  ManagedHost two(stage_, address_);
  message::Join join = join_of(job(1), 0, kTwo);
  join.window = 8;
  join.reproducible = true;
  one.send(join);
  join = join_of(job(1), 1, kTwo);
  join.payload = 100;
  join.reproducible = true;
  two.send(join);
  ASSERT_TRUE(stage_.until([&] { return !one.granted.empty() && !two.granted.empty(); }));
  EXPECT_EQ(one.granted[0].window, 8U);
  EXPECT_EQ(two.granted[0].payload, 96U);
  EXPECT_TRUE(at(0).specs[0].table.reproducible);
}

TEST_F(SessionsTest, ATreeIsThereOnceAllOfItsSwitchesHaveIt) {
  ASSERT_NO_FATAL_FAILURE(start(
      2, "host 10.9.1.1 s0\nhost 10.9.1.2 s0\nhost 10.9.1.3 s1\nhost 10.9.1.4 s1\nlink s0 s1\n"));
  at(1).answers = false;
  const Hosts hosts = ask(job(1), {"10.9.1.1", "10.9.1.2", "10.9.1.3", "10.9.1.4"});
  ASSERT_TRUE(stage_.until([&] { return at(0).specs.size() + at(1).specs.size() == 2; }));
  for (int i = 0; i < 100; ++i) stage_.round();
  for (const auto& host : hosts) EXPECT_TRUE(host->granted.empty());
  const SessionSpec& root = at(0).specs[0];
  const SessionSpec& leaf = at(1).specs[0];
  at(1).service.peer().send(message::Installed{leaf.session});
  ASSERT_TRUE(all_granted(hosts));
  ASSERT_EQ(root.children.size(), 3U);
  EXPECT_TRUE(root.children[2] == data_of(1));
  EXPECT_EQ(root.table.children[2], (RankRange{2, 2}));
  ASSERT_TRUE(leaf.parent);
  EXPECT_TRUE(leaf.parent->address == data_of(0));
  EXPECT_EQ(leaf.parent->child, 2);
  EXPECT_EQ(leaf.parent->key, root.key);
  EXPECT_NE(leaf.key, root.key);
  EXPECT_TRUE(hosts[1]->granted[0].address == data_of(0));
  EXPECT_TRUE(hosts[3]->granted[0].address == data_of(1));
  EXPECT_EQ(hosts[3]->granted[0].key, leaf.key);
}

const char* const kTwoWays =
    "host 10.9.1.1 s0\nhost 10.9.1.1 s1\nhost 10.9.1.2 s0\nhost 10.9.1.2 s1\n";

TEST_F(SessionsTest, AnotherSwitchTakesThePlaceOfOneThatRefusesOrDies) {
  ASSERT_NO_FATAL_FAILURE(start(2, kTwoWays));
  at(0).refusal = "no memory today";
  const Hosts hosts = ask(job(1), kTwo);
  ASSERT_TRUE(all_granted(hosts));
  EXPECT_TRUE(hosts[0]->granted[0].address == data_of(1));
  EXPECT_NE(at(0).specs[0].session, at(1).specs[0].session);

  at(0).refusal = "";
  at(0).answers = false;
  const Hosts others = ask(job(2), kTwo);
  ASSERT_TRUE(stage_.until([&] { return at(0).specs.size() == 2; }));
  at(0).service.hang_up();
  ASSERT_TRUE(all_granted(others));
  EXPECT_TRUE(others[0]->granted[0].address == data_of(1));
}

TEST_F(SessionsTest, IfAllSwitchesRefuseTheRanksAreToldWhy) {
  ASSERT_NO_FATAL_FAILURE(start(2, kTwoWays));
  at(0).refusal = "no memory today";
  at(1).refusal = "no time";
  const std::string why = why_rejected(ask(job(1), kTwo));
  EXPECT_TRUE(says(why, "s0 refused: no memory today"));
  EXPECT_TRUE(says(why, "s1 refused: no time"));
}

TEST_F(SessionsTest, RejectsWhatTheFabricHasNoRoomFor) {
  options_.sessions = 3;
  ASSERT_NO_FATAL_FAILURE(start(1, kTwoHosts));
  EXPECT_TRUE(says(why_rejected(ask(job(1), {kTwo[0], "10.9.1.77"})), "no host 10.9.1.77"));
  Hosts first = ask(job(2), kTwo);
  ASSERT_TRUE(all_granted(first));
  EXPECT_TRUE(says(why_rejected(ask(job(3), kTwo)), "s0 is full: 2 of its 3 sessions are taken"));
  for (const int rank : {0, 1})
    first[static_cast<size_t>(rank)]->send(message::Leave{job(2), rank});
  ASSERT_TRUE(is_removed(0, first[0]->granted[0]));
  EXPECT_TRUE(all_granted(ask(job(4), kTwo)));
}

TEST_F(SessionsTest, ASmallSwitchGivesASmallWindowOrNone) {
  options_.sessions = 2;
  const SlotTableOptions table{.window = 8, .children = std::vector<RankRange>(2), .payload = 1440};
  memory_ = 2 * SlotTable::memory_of(table);
  ASSERT_NO_FATAL_FAILURE(start(1, kTwoHosts));
  const Hosts hosts = ask(job(1), kTwo);
  ASSERT_TRUE(all_granted(hosts));
  EXPECT_EQ(hosts[0]->granted[0].window, 8U);
  memory_ = 1000;
  ASSERT_NO_FATAL_FAILURE(start(1, kTwoHosts));
  EXPECT_TRUE(says(why_rejected(ask(job(2), kTwo)), "does not hold a window of one block"));
}

TEST_F(SessionsTest, ARankThatIsLateIsNamed) {
  ASSERT_NO_FATAL_FAILURE(start(1, kTwoHosts));
  Hosts hosts;
  hosts.push_back(std::make_unique<ManagedHost>(stage_, address_));
  hosts[0]->send(join_of(job(1), 0, kTwo));
  EXPECT_TRUE(
      says(why_rejected(hosts, kInEachRound), "rank 1 has not asked for the session in time"));
}

// ---- Keeping and losing it ---------------------------------------------------------------------

TEST_F(SessionsTest, IsKeptAsLongAsAllRanksRenewIt) {
  ASSERT_NO_FATAL_FAILURE(start(1, kTwoHosts));
  Hosts hosts = ask(job(1), kTwo);
  ASSERT_TRUE(all_granted(hosts));
  const message::Granted granted = hosts[0]->granted[0];
  for (int i = 0; i < 10; ++i) {
    const size_t before = at(0).service.count<message::Extend>();
    for (const int rank : {0, 1}) {
      hosts[static_cast<size_t>(rank)]->send(renewal(granted, rank, 2));
    }
    for (int round = 0; round < 50; ++round) stage_.round();
    stage_.pass(options_.lease / 3);
    ASSERT_TRUE(stage_.until([&] { return at(0).service.count<message::Extend>() > before; }));
  }
  const message::Extend extended = at(0).service.got<message::Extend>().back();
  EXPECT_EQ(extended.sessions, (std::vector<uint32_t>{granted.session, granted.session + 1}));
  EXPECT_EQ(extended.lease, options_.lease);
  EXPECT_TRUE(hosts[1]->lost.empty());
  const Nanos end = now() + 2 * options_.lease;
  const auto renew_one = [&] {  // from now on
    hosts[0]->send(renewal(granted, 0, 2));
    return !hosts[0]->lost.empty();
  };
  ASSERT_TRUE(stage_.until(renew_one, 100 * kMillisecond));
  EXPECT_LT(now(), end);
  EXPECT_EQ(hosts[0]->lost[0], "the lease of rank 1 has run out");
  EXPECT_TRUE(is_removed(0, granted));
}

TEST_F(SessionsTest, IsLostIfItsSwitchDoesNotComeBack) {
  ASSERT_NO_FATAL_FAILURE(start(1, kTwoHosts));
  Hosts hosts = ask(job(1), kTwo);
  ASSERT_TRUE(all_granted(hosts));
  switches_.clear();
  const auto renew = [&] {
    for (const int rank : {0, 1}) {
      hosts[static_cast<size_t>(rank)]->send(renewal(hosts[0]->granted[0], rank, 2));
    }
    return !hosts[0]->lost.empty();
  };
  ASSERT_TRUE(stage_.until(renew, 50 * kMillisecond));
  EXPECT_EQ(hosts[0]->lost[0], "s0 does not answer");
}

// ---- Multicast groups --------------------------------------------------------------------------

TEST_F(SessionsTest, ASessionHasAGroupIfAllItsHostsMayAndOneIsFree) {
  ASSERT_NO_FATAL_FAILURE(start(1, absl::StrCat(kTwoHosts, "multicast 239.192.5.1:7300 1\n")));
  const Address group = *Address::parse("239.192.5.1:7300");
  Hosts none;
  for (const int rank : {0, 1}) {
    message::Join join = join_of(job(1), rank, kTwo);
    join.multicast = rank == 0;
    none.push_back(std::make_unique<ManagedHost>(stage_, address_));
    none.back()->send(join);
  }
  ASSERT_TRUE(all_granted(none));
  EXPECT_FALSE(none[0]->granted[0].group);
  Hosts first = ask(job(2), kTwo);
  ASSERT_TRUE(all_granted(first));
  for (const auto& host : first)
    EXPECT_TRUE(host->granted[0].group && *host->granted[0].group == group);
  EXPECT_TRUE(at(0).specs.back().group && *at(0).specs.back().group == group);
  const Hosts second = ask(job(3), kTwo);
  ASSERT_TRUE(all_granted(second));
  EXPECT_FALSE(second[0]->granted[0].group) << "the group is taken";
  for (const int rank : {0, 1})
    first[static_cast<size_t>(rank)]->send(message::Leave{job(2), rank});
  ASSERT_TRUE(is_removed(0, first[0]->granted[0]));
  const Hosts third = ask(job(4), kTwo);
  ASSERT_TRUE(all_granted(third));
  EXPECT_TRUE(third[0]->granted[0].group);
}

}  // namespace
}  // namespace nezha::flare
