// SPDX-License-Identifier: Apache-2.0
#include "rails/streams.h"

#include <map>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace nezha {
namespace {

using Uris = std::vector<std::string>;

TEST(Streams, EachIsARailOverTheSameInterface) {
  const auto rails = expand_streams({"tcp:eth0?streams=3", "tcp:eth1", "tcp:eth2?streams=1"});
  ASSERT_TRUE(rails.ok()) << rails.status();
  EXPECT_EQ(*rails, (Uris{"tcp:eth0", "tcp:eth0?rail=eth0+2", "tcp:eth0?rail=eth0+3", "tcp:eth1",
                          "tcp:eth2"}));
}

TEST(Streams, TheyHaveTheRailsOtherOptionsAndItsName) {
  const auto rails = expand_streams({"tcp:eth0?cpus=0-3&rail=blue&streams=2"});
  ASSERT_TRUE(rails.ok()) << rails.status();
  EXPECT_EQ(*rails, (Uris{"tcp:eth0?cpus=0-3&rail=blue", "tcp:eth0?cpus=0-3&rail=blue+2"}));
}

int speed_of(const std::string& interface) {
  const std::map<std::string, int> speeds{{"slow", 10000}, {"fast", 25000}, {"faster", 100000}};
  const auto known = speeds.find(interface);
  return known == speeds.end() ? 0 : known->second;
}

TEST(ChooseStreams, ARailGetsThoseThatItsNicCanUse) {
  EXPECT_EQ(choose_streams({"tcp:slow", "tcp:fast?rail=a", "tcp:unknown"}, 64, speed_of),
            (Uris{"tcp:slow", "tcp:fast?rail=a&streams=2", "tcp:unknown"}));
  EXPECT_EQ(choose_streams({"tcp:faster"}, 64, speed_of), (Uris{"tcp:faster?streams=8"}));
}

TEST(ChooseStreams, TheyAreNoMoreThanThereAreThreads) {
  EXPECT_EQ(choose_streams({"tcp:faster"}, 3, speed_of), (Uris{"tcp:faster?streams=3"}));
  EXPECT_EQ(choose_streams({"tcp:faster"}, 0, speed_of), (Uris{"tcp:faster"}));
  EXPECT_EQ(choose_streams({"tcp:fast", "tcp:slow"}, 3, speed_of), (Uris{"tcp:fast", "tcp:slow"}));
}

TEST(ChooseStreams, WhatTheUserSaysOfARailHolds) {
  const Uris named{"tcp:fast?streams=1", "tcp:faster", "tcp:faster?rail=b"};
  EXPECT_EQ(choose_streams(named, 64, speed_of), named);
  const Uris others{"rdma:fast", "flare:fast@10.0.0.6:7000", "nonsense"};
  EXPECT_EQ(choose_streams(others, 64, speed_of), others);
}

TEST(Streams, ANumberThatMakesNoSenseIsAnError) {
  for (const char* number : {"0", "9", "-1", "two", ""}) {
    const auto rails = expand_streams({absl::StrCat("tcp:eth0?streams=", number)});
    EXPECT_TRUE(absl::IsInvalidArgument(rails.status())) << number;
    EXPECT_TRUE(absl::StrContains(rails.status().message(), "1 to 8")) << rails.status();
  }
}

TEST(Streams, WhatIsNoTcpRailIsLeftAsItIs) {
  const Uris uris{"flare:eth0@10.0.0.6:7000?streams=2", "nonsense", "auto"};
  EXPECT_EQ(*expand_streams(uris), uris);
}

}  // namespace
}  // namespace nezha
