// SPDX-License-Identifier: Apache-2.0
#include "context/streams.h"

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
