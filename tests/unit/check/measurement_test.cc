// SPDX-License-Identifier: Apache-2.0
#include "check/measurement.h"

#include <stdexcept>

#include "gtest/gtest.h"
#include "tests/unit/check/evidence.h"

namespace nezha::check {
namespace {

using testing::all_is_well;

TEST(Measurement, ComesBackAsItWas) {
  Evidence evidence = all_is_well(3, 2);
  RailEnd& end = testing::end(evidence, 1, 1);
  end.error = "there is no\tinterface\n'eth1'";
  end.is_found = true;
  end.kind = "rdma";
  end.is_loopback = true;
  end.rp_filter = 2;
  end.arp_ignore = 8;
  end.arp_filter = 1;
  end.sibling = "eth0";
  const RankFacts facts = decode_facts(encode(evidence.ranks[1]));
  EXPECT_EQ(facts.host, "node1");
  EXPECT_EQ(facts.size, 3);
  ASSERT_EQ(facts.rails.size(), 2u);
  EXPECT_EQ(facts.rails[1].error, "there is no interface 'eth1'");
  EXPECT_EQ(encode(facts), encode(evidence.ranks[1]));

  testing::fail(evidence, 1, 2, 0, Outcome::kWrongInterface, "eth7");
  const auto reaches = decode_reaches(encode(evidence.reaches[1]), 1, evidence.ranks);
  EXPECT_EQ(encode(reaches), encode(evidence.reaches[1]));

  evidence.paths[0].error = "lost";
  evidence.paths[0].loses_back = true;
  evidence.paths[1].gbps_there = Path::kUnknown;
  EXPECT_EQ(encode(decode_paths(encode(evidence.paths), evidence.ranks)), encode(evidence.paths));
}

TEST(Measurement, EmptyTextDecodesToNothing) {
  const Evidence evidence = all_is_well(2, 1);
  EXPECT_TRUE(decode_reaches("", 0, evidence.ranks).empty());
  EXPECT_TRUE(decode_paths("", evidence.ranks).empty());
}

TEST(Measurement, RefusesWhatMakesNoSense) {
  const Evidence evidence = all_is_well(2, 1);
  for (const char* text : {"", "x", "nezha-check 1\t2\tnode0", "nezha-check 9\t2\tnode0\tid",
                           "nezha-check 1\t0\tnode0\tid", "nezha-check 1\t2\tnode0\tid\neth0"}) {
    EXPECT_THROW(decode_facts(text), std::runtime_error) << text;
  }
  for (const char* text : {"2\t0\t0\t0\t", "-1\t0\t0\t0\t", "1\t1\t0\t0\t", "1\t0\t-1\t0\t",
                           "1\t0\t0\t8\t", "1\t0\t0\t0", "1\t0\t0\t0\t\t"}) {
    EXPECT_THROW(decode_reaches(text, 0, evidence.ranks), std::runtime_error) << text;
  }
  for (const char* text :
       {"0\t2\t0\t0\t1\t1\t0\t0\t1\t1\t1\t", "0\t1\t0\t0\t-2\t1\t0\t0\t1\t1\t1\t",
        "0\t1\t0\t0\t1\t1\t0\t0\tnan\t1\t1\t", "0\t1\t0\t0\t1\t1\t0\t0\t1\tinf\t1\t",
        "0\t1\t0\t0\t1\t1\t2\t0\t1\t1\t1\t", "0\t1\t0"}) {
    EXPECT_THROW(decode_paths(text, evidence.ranks), std::runtime_error) << text;
  }
}

}  // namespace
}  // namespace nezha::check
