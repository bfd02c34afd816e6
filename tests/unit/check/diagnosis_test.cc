// SPDX-License-Identifier: Apache-2.0
#include "check/diagnosis.h"

#include "absl/strings/match.h"
#include "gtest/gtest.h"
#include "tests/unit/check/evidence.h"

namespace nezha::check {
namespace {

using testing::all_is_well;
using testing::connect_all;
using testing::end;
using testing::fail;
using testing::lose;
using testing::path;

// The kinds of the findings, in order.
std::vector<std::string> kinds(const std::vector<Finding>& findings) {
  std::vector<std::string> all;
  all.reserve(findings.size());
  for (const Finding& finding : findings) all.push_back(finding.kind);
  return all;
}

using Kinds = std::vector<std::string>;

#define EXPECT_SAYS(finding, words) \
  EXPECT_TRUE(absl::StrContains((finding).text, words)) << (finding).text

#define EXPECT_SILENT_ON(finding, words) \
  EXPECT_FALSE(absl::StrContains((finding).text, words)) << (finding).text

TEST(Diagnosis, FindsNothingWhereAllIsWell) {
  for (const int ranks : {1, 2, 3, 8}) {
    for (const int rails : {1, 2}) EXPECT_TRUE(diagnose(all_is_well(ranks, rails)).empty());
  }
}

// ---- Connections -------------------------------------------------------------------------------

TEST(Diagnosis, TellsTheHostThatRefuses) {
  Evidence evidence = all_is_well(3, 2);
  fail(evidence, 0, 1, 1, Outcome::kRefused);
  fail(evidence, 2, 1, 1, Outcome::kRefused);
  const auto findings = diagnose(evidence);
  ASSERT_EQ(kinds(findings), Kinds{"refused"});
  EXPECT_SAYS(findings[0], "Rail eth1, from every other rank to rank 1 (node1)");
  EXPECT_SAYS(findings[0], "10.1.0.2 port 20000");
  EXPECT_SAYS(findings[0], "A firewall of node1");
  EXPECT_SAYS(findings[0], "NEZHA_PORTS");
}

TEST(Diagnosis, TellsOfAMissingRoute) {
  Evidence evidence = all_is_well(2, 1);
  fail(evidence, 0, 1, 0, Outcome::kNoRoute, "Network is unreachable");
  const auto findings = diagnose(evidence);
  ASSERT_EQ(kinds(findings), Kinds{"no-route"});
  EXPECT_SAYS(findings[0], "there is no route to 10.0.0.2 port 20000 (Network is unreachable)");
}

TEST(Diagnosis, ReportsAPathThatFailsInOneDirection) {
  Evidence evidence = all_is_well(4, 1);
  fail(evidence, 2, 3, 0, Outcome::kSilent);
  const auto findings = diagnose(evidence);
  ASSERT_EQ(kinds(findings), Kinds{"silent"});
  EXPECT_SAYS(findings[0], "Rail eth0, from rank 2 (node2) to rank 3 (node3)");
  EXPECT_SAYS(findings[0], "Connections the other way work, so that a firewall of node3");
  EXPECT_SAYS(findings[0], "A job uses the rail there all the same");
  EXPECT_SAYS(findings[0], "NEZHA_PORTS");
}

TEST(Diagnosis, TellsThatAFirewallMaySayThatThereIsNoRoute) {
  Evidence evidence = all_is_well(3, 1);
  fail(evidence, 0, 1, 0, Outcome::kNoRoute, "No route to host");
  const auto findings = diagnose(evidence);
  ASSERT_EQ(kinds(findings), Kinds{"no-route"});
  EXPECT_SAYS(findings[0], "A firewall of node1 may reject connections in this manner");
  EXPECT_SILENT_ON(findings[0], "ip route get");
}

TEST(Diagnosis, TellsOfAPathWhoseAnswersAreLate) {
  Evidence evidence = all_is_well(4, 2);
  for (Path& path : evidence.paths) path.round_trip_us = 20;
  evidence.paths[1].round_trip_us = 206'596;
  const auto findings = diagnose(evidence);
  ASSERT_EQ(kinds(findings), Kinds{"late"});
  EXPECT_SAYS(findings[0], "takes 207 ms, and that of most paths 0.02 ms: packets are lost");
}

TEST(Diagnosis, IsSilentOnAnswersThatAreAllLate) {
  Evidence evidence = all_is_well(4, 2);
  for (Path& path : evidence.paths) path.round_trip_us = 150'000;
  EXPECT_TRUE(diagnose(evidence).empty());
}

TEST(Diagnosis, TellsOfBothWaysAtOnce) {
  Evidence evidence = all_is_well(4, 1);
  fail(evidence, 2, 3, 0, Outcome::kSilent);
  fail(evidence, 3, 2, 0, Outcome::kSilent);
  const auto findings = diagnose(evidence);
  ASSERT_EQ(kinds(findings), Kinds{"silent"});
  EXPECT_SAYS(findings[0], "between rank 2 (node2) and rank 3 (node3)");
  EXPECT_SAYS(findings[0], "`ping -I eth0 10.0.0.4` on node2");
  EXPECT_SAYS(findings[0], "A job stops with an error");
}

TEST(Diagnosis, TellsOfAHostThatIsCutOffOnce) {
  Evidence evidence = all_is_well(8, 2);
  for (int peer = 0; peer < 8; ++peer) {
    if (peer == 5) continue;
    fail(evidence, 5, peer, 1, Outcome::kNoNeighbour);
    fail(evidence, peer, 5, 1, Outcome::kNoNeighbour);
  }
  const auto findings = diagnose(evidence);
  ASSERT_EQ(kinds(findings), Kinds{"no-neighbour"});
  EXPECT_SAYS(findings[0], "Rail eth1, between rank 5 (node5) and every other rank");
  EXPECT_SAYS(findings[0], "eth1 on node5");
  EXPECT_SAYS(findings[0], "A job runs without this rail there.");
  EXPECT_SILENT_ON(findings[0], "subnets");
}

TEST(Diagnosis, TellsOfEachOfTwoHostsThatAreCutOff) {
  Evidence evidence = all_is_well(6, 1);
  const auto is_bad = [](int rank) { return rank == 1 || rank == 4; };
  for (int rank = 0; rank < 6; ++rank) {
    for (int peer = 0; peer < 6; ++peer) {
      if (rank == peer || (!is_bad(rank) && !is_bad(peer))) continue;
      fail(evidence, rank, peer, 0, Outcome::kSilent);
    }
  }
  const auto findings = diagnose(evidence);
  ASSERT_EQ(kinds(findings), (Kinds{"silent", "silent"}));
  EXPECT_SAYS(findings[0], "between rank 1 (node1) and every other rank");
  EXPECT_SAYS(findings[1], "between rank 4 (node4) and every other rank");
}

TEST(Diagnosis, TellsOfARailThatJoinsNobody) {
  Evidence evidence = all_is_well(3, 2);
  for (int rank = 0; rank < 3; ++rank) {
    for (int peer = 0; peer < 3; ++peer) {
      if (rank != peer) fail(evidence, rank, peer, 1, Outcome::kSilent);
    }
  }
  const auto findings = diagnose(evidence);
  ASSERT_EQ(kinds(findings), Kinds{"silent"});
  EXPECT_SAYS(findings[0], "Rail eth1, between all ranks");
}

TEST(Diagnosis, TellsOfRanksOfOneHostOnce) {
  Evidence evidence = all_is_well(4, 1);
  for (int rank = 0; rank < 4; ++rank) {
    RankFacts& facts = evidence.ranks[static_cast<size_t>(rank)];
    facts.host = rank < 2 ? "node0" : "node1";
    facts.namespace_id = facts.host;
  }
  for (const int rank : {0, 1}) {
    for (const int peer : {2, 3}) fail(evidence, rank, peer, 0, Outcome::kRefused);
  }
  EXPECT_EQ(kinds(diagnose(evidence)), Kinds{"refused"});
}

TEST(Diagnosis, TellsTheSubnetsOfARailThatJoinsTwoNetworks) {
  Evidence evidence = all_is_well(3, 2);
  std::swap(end(evidence, 1, 0).rail, end(evidence, 1, 1).rail);
  connect_all(evidence);
  for (const int peer : {0, 2}) {
    for (const int rail : {0, 1}) {
      fail(evidence, 1, peer, rail, Outcome::kNoNeighbour);
      fail(evidence, peer, 1, rail, Outcome::kNoNeighbour);
    }
  }
  const auto findings = diagnose(evidence);
  ASSERT_EQ(kinds(findings), (Kinds{"no-neighbour", "no-neighbour"}));
  EXPECT_SAYS(findings[0], "10.0.0.0/16 on rank 0 (node0) and 10.1.0.0/16 on rank 1 (node1)");
  EXPECT_SAYS(findings[0], "The rail eth1 of rank 1 (node1) is on the first of these subnets");
}

TEST(Diagnosis, AllowsRoutedSubnets) {
  Evidence evidence = all_is_well(2, 1);
  end(evidence, 1, 0).address = "10.7.0.2";
  end(evidence, 1, 0).subnet = "10.7.0.0/16";
  EXPECT_TRUE(diagnose(evidence).empty());
}

TEST(Diagnosis, TellsOfStrictReversePathFilters) {
  Evidence evidence = all_is_well(2, 2);
  end(evidence, 1, 1).rp_filter = 1;
  end(evidence, 1, 1).arp_ignore = 1;
  end(evidence, 1, 1).sibling = "eth0";
  EXPECT_TRUE(diagnose(evidence).empty()) << "it is harmless with policy routes";
  fail(evidence, 0, 1, 1, Outcome::kSilent);
  fail(evidence, 1, 0, 1, Outcome::kSilent);
  const auto findings = diagnose(evidence);
  ASSERT_EQ(kinds(findings), Kinds{"silent"});
  EXPECT_SAYS(findings[0], "node1 filters by strict reverse path");
  EXPECT_SAYS(findings[0], "sysctl net.ipv4.conf.all.rp_filter=2");
}

TEST(Diagnosis, TellsWhereAConnectionArrived) {
  Evidence evidence = all_is_well(2, 2);
  fail(evidence, 0, 1, 1, Outcome::kWrongInterface, "eth0");
  const auto findings = diagnose(evidence);
  ASSERT_EQ(kinds(findings), Kinds{"wrong-interface"});
  EXPECT_SAYS(findings[0], "the address of eth1 arrive at the interface eth0 of node1");
  EXPECT_SAYS(findings[0], "net.ipv4.conf.all.arp_ignore=1");
}

TEST(Diagnosis, ReportsAHostThatAnswersArpOnTheWrongInterface) {
  Evidence evidence = all_is_well(2, 2);
  end(evidence, 1, 0).sibling = "eth1";
  end(evidence, 1, 1).sibling = "eth0";
  const auto findings = diagnose(evidence);
  ASSERT_EQ(kinds(findings), Kinds{"arp"});
  EXPECT_SAYS(findings[0], "rank 1 (node1)");
  for (const int rail : {0, 1}) {  // one of the two rails is enough for the fault
    Evidence one = evidence;
    end(one, 1, rail).arp_ignore = 1;
    EXPECT_EQ(kinds(diagnose(one)), Kinds{"arp"}) << rail;
  }
  end(evidence, 1, 0).arp_ignore = 1;
  end(evidence, 1, 1).arp_filter = 1;
  EXPECT_TRUE(diagnose(evidence).empty());
}

// ---- Ends --------------------------------------------------------------------------------------

TEST(Diagnosis, TellsAnInterfaceThatIsNotThere) {
  Evidence evidence = all_is_well(3, 2);
  end(evidence, 1, 1).rail = end(evidence, 1, 1).interface = "eth9";
  end(evidence, 1, 1).error = "there is no interface 'eth9' (there are: eth0, eth1, lo)";
  end(evidence, 1, 1).subnet = "";
  connect_all(evidence);
  const auto findings = diagnose(evidence);
  ASSERT_EQ(kinds(findings), (Kinds{"unusable", "missing"}));
  EXPECT_SAYS(findings[0], "rank 1 (node1)");
  EXPECT_SAYS(findings[0], "there is no interface 'eth9' (there are: eth0, eth1, lo)");
  EXPECT_SAYS(findings[1], "Rail eth1: ranks 0 (node0) and 2 (node2) have it, and rank 1 (node1)");
}

TEST(Diagnosis, TellsOfOneNetworkWithTwoNames) {
  Evidence evidence = all_is_well(2, 2);
  end(evidence, 1, 1).rail = "blue";
  connect_all(evidence);
  const auto findings = diagnose(evidence);
  ASSERT_EQ(kinds(findings), Kinds{"missing"}) << "once, and not for each name";
  EXPECT_SAYS(findings[0], "Rail blue: rank 1 (node1) has it, and rank 0 (node0) does not");
  EXPECT_SAYS(findings[0], "The rail eth1 of rank 0 (node0) is on the same subnet");
  EXPECT_SAYS(findings[0], "?rail=NAME");
}

TEST(Diagnosis, TellsOfAutoBesideNamedRails) {
  Evidence evidence = all_is_well(2, 1);
  end(evidence, 1, 0).rail = "10.0.0.0/16";
  end(evidence, 1, 0).is_found = true;
  connect_all(evidence);
  const auto findings = diagnose(evidence);
  ASSERT_EQ(kinds(findings), (Kinds{"missing", "no-rail"}));
  EXPECT_SAYS(findings[0], "auto on all hosts or on none");
  EXPECT_SAYS(findings[1], "common to rank 0 (node0) and rank 1 (node1)");
}

TEST(Diagnosis, PairsRailsThatAutoHasFoundByTheirInterfaces) {
  Evidence evidence = all_is_well(2, 1);
  for (const int rank : {0, 1}) {
    RailEnd& it = end(evidence, rank, 0);
    it.subnet = it.rail = absl::StrCat("10.", rank, ".0.0/16");
    it.is_found = true;
  }
  connect_all(evidence);
  EXPECT_TRUE(diagnose(evidence).empty());
}

TEST(Diagnosis, ReportsAnInterfaceThatIsDownWithoutItsConsequences) {
  Evidence evidence = all_is_well(3, 1);
  end(evidence, 1, 0).is_running = false;
  for (const int peer : {0, 2}) {
    fail(evidence, 1, peer, 0, Outcome::kNoRoute);
    fail(evidence, peer, 1, 0, Outcome::kNoNeighbour);
  }
  const auto findings = diagnose(evidence);
  ASSERT_EQ(kinds(findings), Kinds{"down"});
  EXPECT_SAYS(findings[0], "rank 1 (node1): the interface eth0 is down or has no carrier");
}

TEST(Diagnosis, TellsOfOneAddressOnSeveralHosts) {
  Evidence evidence = all_is_well(2, 1);
  for (const int rank : {0, 1}) end(evidence, rank, 0).address = "172.17.0.1";
  fail(evidence, 0, 1, 0, Outcome::kStranger);
  fail(evidence, 1, 0, 0, Outcome::kStranger);
  const auto findings = diagnose(evidence);
  ASSERT_EQ(kinds(findings), Kinds{"own-address"});
  EXPECT_SAYS(findings[0], "172.17.0.1");
  EXPECT_SAYS(findings[0], "docker0");
}

TEST(Diagnosis, AllowsLoopbackOnOneHost) {
  Evidence evidence = all_is_well(2, 1);
  for (const int rank : {0, 1}) {
    evidence.ranks[static_cast<size_t>(rank)].namespace_id = "here";
    end(evidence, rank, 0).address = "127.0.0.1";
    end(evidence, rank, 0).is_loopback = true;
  }
  EXPECT_TRUE(diagnose(evidence).empty());
}

TEST(Diagnosis, TellsOfInterfacesWithDifferentMtus) {
  Evidence evidence = all_is_well(3, 1);
  end(evidence, 2, 0).mtu = 9000;
  const auto findings = diagnose(evidence);
  ASSERT_EQ(kinds(findings), Kinds{"mtu-differs"});
  EXPECT_SAYS(findings[0],
              "1500 bytes on ranks 0 (node0) and 1 (node1) and 9000 bytes on rank 2 (node2)");
}

// ---- Measurements ------------------------------------------------------------------------------

TEST(Diagnosis, ReportsTheLargestPacketsThatArrive) {
  Evidence evidence = all_is_well(3, 2);
  lose(evidence, 0, 1, 1, 1400, 1380);
  const auto findings = diagnose(evidence);
  ASSERT_EQ(kinds(findings), Kinds{"mtu"});
  EXPECT_SAYS(findings[0], "Rail eth1, between rank 0 (node0) and rank 1 (node1)");
  EXPECT_SAYS(findings[0], "MTU of 1500 bytes");
  EXPECT_SAYS(findings[0], "1400 bytes from rank 0 (node0) to rank 1 (node1)");
  EXPECT_SAYS(findings[0], "1380 bytes from rank 1 (node1) to rank 0 (node0)");
  EXPECT_SAYS(findings[0], "`ping -M do -s 1472 -I eth1 10.1.0.2` on node0");
}

TEST(Diagnosis, TellsTheDirectionThatLosesLargePackets) {
  Evidence evidence = all_is_well(3, 1);
  lose(evidence, 0, 1, 0, 586, 1500);
  lose(evidence, 1, 2, 0, 1500, 600);
  const auto findings = diagnose(evidence);
  ASSERT_EQ(kinds(findings), Kinds{"mtu"});
  EXPECT_SAYS(findings[0], "from every other rank to rank 1 (node1)");
  EXPECT_SAYS(findings[0], "got through was 586 bytes");
}

TEST(Diagnosis, AllowsSmallPacketsWhereNoneAreLost) {
  Evidence evidence = all_is_well(2, 1);
  path(evidence, 0, 1, 0).frame_there = path(evidence, 0, 1, 0).frame_back = 1400;
  EXPECT_TRUE(diagnose(evidence).empty());
}

TEST(Diagnosis, ExpectsPacketsOfTheSmallerMtu) {
  Evidence evidence = all_is_well(2, 1);
  end(evidence, 1, 0).mtu = 9000;
  EXPECT_EQ(kinds(diagnose(evidence)), Kinds{"mtu-differs"});
}

TEST(Diagnosis, TellsADirectionThatIsSlow) {
  Evidence evidence = all_is_well(2, 1);
  path(evidence, 0, 1, 0).gbps_back = 0.9;
  const auto findings = diagnose(evidence);
  ASSERT_EQ(kinds(findings), Kinds{"slow"});
  EXPECT_SAYS(findings[0], "Rail eth0, from rank 1 (node1) to rank 0 (node0)");
  EXPECT_SAYS(findings[0], "0.9 Gbit/s");
  EXPECT_SAYS(findings[0], "9.4 Gbit/s");
}

TEST(Diagnosis, TellsAHostThatIsSlow) {
  Evidence evidence = all_is_well(5, 1);
  for (Path& each : evidence.paths) {
    if (each.from == 3 || each.to == 3) each.gbps_there = each.gbps_back = 0.94;
  }
  const auto findings = diagnose(evidence);
  ASSERT_EQ(kinds(findings), Kinds{"slow"});
  EXPECT_SAYS(findings[0], "between rank 3 (node3) and every other rank");
  EXPECT_SAYS(findings[0], "ethtool eth0");
}

TEST(Diagnosis, TellsARailThatIsMuchSlowerThanAnother) {
  Evidence evidence = all_is_well(3, 2);
  for (Path& each : evidence.paths) {
    if (each.rail == 1) each.gbps_there = each.gbps_back = 0.94;
  }
  const auto findings = diagnose(evidence);
  ASSERT_EQ(kinds(findings), Kinds{"slow-rail"});
  EXPECT_SAYS(findings[0], "Rail eth1 carries 0.94 Gbit/s, and rail eth0 9.4 Gbit/s");
}

TEST(Diagnosis, AllowsRailsOfDifferentRates) {
  Evidence evidence = all_is_well(3, 2);
  for (Path& each : evidence.paths) {
    if (each.rail == 1) each.gbps_there = each.gbps_back = 4;
  }
  EXPECT_TRUE(diagnose(evidence).empty());
}

TEST(Diagnosis, TellsOfARailThatFailedMeanwhile) {
  Evidence evidence = all_is_well(2, 1);
  Path& broken = path(evidence, 0, 1, 0);
  broken.gbps_there = broken.gbps_back = Path::kUnknown;
  broken.error = "a further connection failed: Connection timed out";
  const auto findings = diagnose(evidence);
  ASSERT_EQ(kinds(findings), Kinds{"broken"});
  EXPECT_SAYS(findings[0], "Connection timed out");
}

// The link has died under load, so what was measured before does not show its rate.
TEST(Diagnosis, TellsOnceOfAPathThatCarriesNothing) {
  Evidence evidence = all_is_well(3, 2);
  Path& dead = path(evidence, 0, 2, 1);
  dead.gbps_there = dead.gbps_back = 0;
  dead.error = "a connection was made, but carried nothing";
  const auto findings = diagnose(evidence);
  ASSERT_EQ(kinds(findings), Kinds{"broken"});
  EXPECT_SAYS(findings[0], "Rail eth1, between rank 0 (node0) and rank 2 (node2)");
  EXPECT_SAYS(findings[0], "carried nothing");
}

}  // namespace
}  // namespace nezha::check
