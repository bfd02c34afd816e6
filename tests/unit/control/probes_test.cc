// SPDX-License-Identifier: Apache-2.0
#include "control/probes.h"

#include "control/model_policy.h"
#include "gtest/gtest.h"

namespace nezha {
namespace {

constexpr SizeClass kProbed = 10;

// Short messages on two rails, of which the first takes less.
class ProbesTest : public testing::Test {
 protected:
  ProbesTest() {
    choice_.open(kProbed);
    probes_.open(kProbed);
  }

  static Window by_first() { return {kProbed, 1536, 1, {{20'000, 200}, {}}, Timer::kOperations}; }
  static Window by_second() { return {kProbed, 1536, 1, {{}, {30'000, 300}}, Timer::kOperations}; }
  void learn_first() { model_.learn(by_first(), all_on(0, 2)); }
  void learn_second() { model_.learn(by_second(), all_on(1, 2)); }
  auto next() { return probes_.next(by_first(), all_on(0, 2)); }

  const ModelPolicy lanes_{2};
  LaneModel model_{2};
  SplitChoice choice_{lanes_, model_};
  Probes probes_{lanes_, model_, choice_};
};

// Each that only confirms what was known lets the next one wait for twice as long.
TEST_F(ProbesTest, OfShortMessagesThatConfirmBecomeRare) {
  const auto windows_until_probe = [&] {
    learn_second();
    int windows = 0;
    for (; windows < 1000; ++windows) {
      probes_.ran(by_first());
      learn_first();
      if (const auto probe = next()) {
        EXPECT_EQ(probe->allocation, all_on(1, 2));
        EXPECT_FALSE(probe->is_doubt);  // for those settled() counts windows
        break;
      }
    }
    return windows;
  };
  for (int i = 0; i < 5000; ++i) probes_.ran(by_first());  // so that the budget does not decide
  const int at_first = windows_until_probe();
  probes_.ended(kProbed, 0b10, true);
  const int confirmed = windows_until_probe();
  EXPECT_GT(at_first, 2);
  EXPECT_NEAR(confirmed, 2 * at_first, 2);
  probes_.ended(kProbed, 0b10, false);
  EXPECT_EQ(windows_until_probe(), at_first);
}

TEST_F(ProbesTest, WaitUntilTheBudgetAffordsThem) {
  learn_second();
  int windows = 0;
  do {
    probes_.ran(by_first());
    learn_first();
    ASSERT_LT(++windows, 10'000);
  } while (!next());
  const double cost = ProbeBudget::cost(20'000, 30'000, 3);
  EXPECT_GE(windows * Timer::kOperations * 20'000 * ProbeBudget::kPart, 2 * cost);
  for (int i = 0; i < 20; ++i) probes_.charge(20'000, by_second(), false);
  EXPECT_GT(probes_.spent(), ProbeBudget::kPart);
  for (int i = 0; i < 20; ++i) learn_first();
  EXPECT_FALSE(next().has_value());
}

}  // namespace
}  // namespace nezha
