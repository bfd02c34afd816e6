// SPDX-License-Identifier: Apache-2.0
#include "check/schedule.h"

#include <algorithm>
#include <cstddef>
#include <set>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace nezha::check {
namespace {

std::vector<std::string> hosts(int ranks, int ranks_per_host) {
  std::vector<std::string> all;
  all.reserve(static_cast<size_t>(ranks));
  for (int rank = 0; rank < ranks; ++rank) all.push_back(absl::StrCat("h", rank / ranks_per_host));
  return all;
}

// Whether the rank is the lowest one of its host.
bool is_first(const std::vector<std::string>& hosts, size_t rank) {
  return std::find(hosts.begin(), hosts.end(), hosts[rank]) ==
         hosts.begin() + static_cast<std::ptrdiff_t>(rank);
}

// Checks what every schedule promises, and returns how many rounds it has.
size_t rounds(const std::vector<std::string>& hosts) {
  const auto all = schedule(hosts);
  std::set<Pair> met;
  for (const Round& round : all) {
    std::set<std::string> busy;
    for (const Pair& pair : round) {
      EXPECT_LT(pair.first, pair.second);
      EXPECT_TRUE(met.insert(pair).second) << pair.first << "-" << pair.second << " meet twice";
      for (const int rank : {pair.first, pair.second}) {
        EXPECT_TRUE(busy.insert(hosts.at(static_cast<size_t>(rank))).second)
            << "a host is in two pairs at once";
      }
    }
  }
  for (size_t low = 0; low < hosts.size(); ++low) {
    for (size_t high = low + 1; high < hosts.size(); ++high) {
      const Pair pair{static_cast<int>(low), static_cast<int>(high)};
      EXPECT_EQ(met.contains(pair), is_first(hosts, low) && is_first(hosts, high));
    }
  }
  return all.size();
}

TEST(Schedule, HasAsFewRoundsAsThereCanBe) {
  EXPECT_EQ(rounds(hosts(1, 1)), 0u);
  for (const int ranks : {2, 4, 6, 16, 64}) {
    EXPECT_EQ(rounds(hosts(ranks, 1)), static_cast<size_t>(ranks - 1));
  }
  for (const int ranks : {3, 5, 7, 33}) {
    EXPECT_EQ(rounds(hosts(ranks, 1)), static_cast<size_t>(ranks));
  }
}

TEST(Schedule, LetsOneRankOfAHostMeasure) {
  EXPECT_EQ(rounds(hosts(4, 4)), 0u);
  EXPECT_EQ(rounds(hosts(4, 2)), 1u);
  EXPECT_EQ(rounds(hosts(32, 8)), 3u);
  EXPECT_EQ(rounds({"a", "b", "b", "a", "c"}), 3u);
}

}  // namespace
}  // namespace nezha::check
