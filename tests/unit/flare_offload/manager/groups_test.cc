// SPDX-License-Identifier: Apache-2.0
#include "flare_offload/manager/groups.h"

#include <gtest/gtest.h>

#include <string>

namespace nezha::flare {
namespace {

Address at(const char* text) { return *Address::parse(text); }

std::string str(const std::optional<Address>& group) { return group ? group->str() : "none"; }

TEST(GroupsTest, GivesEachOnceAndThoseThatCameBackInTurn) {
  Groups groups(GroupRange{at("239.192.0.255:7200"), 3});
  EXPECT_EQ(str(groups.take()), "239.192.0.255:7200");
  EXPECT_EQ(str(groups.take()), "239.192.1.0:7200");
  groups.release(at("239.192.0.255:7200"));
  EXPECT_EQ(str(groups.take()), "239.192.1.1:7200");
  EXPECT_EQ(str(groups.take()), "239.192.0.255:7200");
  EXPECT_EQ(str(groups.take()), "none");
  groups.release(at("239.192.1.1:7200"));
  EXPECT_EQ(str(groups.take()), "239.192.1.1:7200");
}

TEST(GroupsTest, GroupsOfExistingSessionsAreReserved) {
  Groups groups(GroupRange{at("[ff18::1]:7200"), 2});
  EXPECT_TRUE(groups.take(at("[ff18::2]:7200")));
  EXPECT_FALSE(groups.take(at("[ff18::2]:7200")));
  for (const char* other : {"[ff18::]:7200", "[ff18::3]:7200", "[ff18::1]:7201", "[ff17::1]:7200",
                            "239.192.0.1:7200"}) {
    EXPECT_FALSE(groups.take(at(other))) << other;
    groups.release(at(other));
  }
  EXPECT_EQ(str(groups.take()), "[ff18::1]:7200");
  EXPECT_EQ(str(groups.take()), "none");
}

TEST(GroupsTest, MayBeNone) {
  Groups groups({});
  EXPECT_EQ(str(groups.take()), "none");
  EXPECT_FALSE(groups.take(at("239.192.0.1:7200")));
  groups.release(at("239.192.0.1:7200"));
}

}  // namespace
}  // namespace nezha::flare
