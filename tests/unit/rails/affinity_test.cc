// SPDX-License-Identifier: Apache-2.0
#include "rails/affinity.h"

#include <vector>

#include "gtest/gtest.h"

namespace nezha {
namespace {

using Dealt = std::vector<Cpus>;

TEST(Affinity, CoresAreDealtOutInTurn) {
  EXPECT_EQ(deal_cores({{}, {}}, {0, 1, 2, 3}), (Dealt{{0, 2}, {1, 3}}));
  EXPECT_EQ(deal_cores({{}, {}, {}}, {3, 5, 6, 8}), (Dealt{{3, 8}, {5}, {6}}));
  EXPECT_EQ(deal_cores({{}}, {4, 7}), (Dealt{{4, 7}}));
  EXPECT_EQ(deal_cores({}, {0}), Dealt{});
}

TEST(Affinity, RailsOfOneNodeShareItsCores) {
  EXPECT_EQ(deal_cores({{0, 1, 2, 3}, {4, 5, 6, 7}, {0, 1, 2, 3}}, {0, 1, 2, 3, 4, 5, 6, 7}),
            (Dealt{{0, 2}, {4, 5, 6, 7}, {1, 3}}));
}

TEST(Affinity, ACoreThatIsNotFreeIsNotDealt) {
  EXPECT_EQ(deal_cores({{0, 1, 2, 3}}, {2, 3, 4}), (Dealt{{2, 3}}));
  EXPECT_EQ(deal_cores({{0, 1}}, {4, 5}), (Dealt{{4, 5}})) << "a far one is better than none";
}

TEST(Affinity, RailsWhoseNodeIsNotKnownTakeWhatOthersLeave) {
  EXPECT_EQ(deal_cores({{}, {0, 1}}, {0, 1, 2, 3}), (Dealt{{0, 2, 3}, {1}}));
}

TEST(Affinity, NoRailGoesWithout) {
  EXPECT_EQ(deal_cores({{}, {}, {}, {}, {}}, {2, 3}), (Dealt{{2}, {3}, {2}, {3}, {2}}));
}

}  // namespace
}  // namespace nezha
