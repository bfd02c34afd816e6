// SPDX-License-Identifier: Apache-2.0
#include "common/unique_id.h"

#include <set>
#include <string>

#include "gtest/gtest.h"

namespace nezha {
namespace {

TEST(UniqueId, TextComesBack) {
  const UniqueId id{0x0123456789abcdef, 0x00000000000000ff};
  EXPECT_EQ(id.str(), "0123456789abcdef00000000000000ff");
  EXPECT_EQ(*UniqueId::parse(id.str()), id);
  const UniqueId largest{~uint64_t{0}, ~uint64_t{0}};
  EXPECT_EQ(*UniqueId::parse(largest.str()), largest);
}

TEST(UniqueId, OtherTextIsRefused) {
  const std::string good = UniqueId{1, 2}.str();
  for (const std::string& bad :
       {std::string(), good.substr(1), good + "0", "g" + good.substr(1), "0x" + good.substr(2),
        " " + good.substr(1), "-" + good.substr(1), good.substr(0, 31) + "F",
        good.substr(0, 31) + std::string(1, '\0')}) {
    EXPECT_FALSE(UniqueId::parse(bad).ok()) << bad;
  }
}

TEST(UniqueId, RandomOnesDiffer) {
  std::set<UniqueId> seen;
  for (int i = 0; i < 1000; ++i) {
    const UniqueId id = UniqueId::random();
    EXPECT_TRUE(seen.insert(id).second);
    EXPECT_NE(id.high, id.low);
  }
}

}  // namespace
}  // namespace nezha
