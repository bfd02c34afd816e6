// SPDX-License-Identifier: Apache-2.0
#include "context/settings.h"

#include <cstdlib>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "common/environment.h"
#include "gtest/gtest.h"

namespace nezha {
namespace {

using std::chrono::milliseconds;

class SettingsTest : public ::testing::Test {
 protected:
  SettingsTest() { clear(); }
  ~SettingsTest() override { clear(); }
  static void clear() {
    for (const auto& variable : environment_table()) unsetenv(std::string(variable.name).c_str());
  }
  // What a rank with the options `own` has after it adopts the settings of rank 0.
  static AgreedSettings adopted(const std::string& rank0, const ContextOptions& own = {}) {
    AgreedSettings settings(own);
    const absl::Status status = settings.adopt(rank0, 3);
    EXPECT_TRUE(status.ok()) << status;
    return settings;
  }
  static absl::Status refusal(const std::string& rank0, const ContextOptions& own = {}) {
    return AgreedSettings(own).adopt(rank0, 3);
  }
  static std::string of_rank0(const ContextOptions& own, size_t rails) {
    AgreedSettings settings(own);
    settings.complete(rails);
    return settings.encode();
  }
  static void expect_mentions(const absl::Status& status, const std::vector<std::string>& parts) {
    for (const std::string& part : parts) {
      EXPECT_TRUE(absl::StrContains(status.message(), part)) << part << ": " << status;
    }
  }
};

TEST_F(SettingsTest, TheCodeGoesBeforeTheEnvironmentAndThatBeforeTheDefault) {
  ContextOptions options;
  ASSERT_TRUE(complete_own_options(options).ok());
  EXPECT_EQ(options.rails, std::vector<std::string>{"auto"});
  options = {};
  setenv("NEZHA_RAILS", "tcp:eth0,tcp:eth1", 1);
  ASSERT_TRUE(complete_own_options(options).ok());
  EXPECT_EQ(options.rails, (std::vector<std::string>{"tcp:eth0", "tcp:eth1"}));
  EXPECT_EQ(options.timeout, milliseconds(30'000));
  EXPECT_EQ(options.polling, Polling::kLatencyFirst);

  setenv("NEZHA_TIMEOUT", "2s", 1);
  setenv("NEZHA_POLLING", "cpu-first", 1);
  options = {};
  ASSERT_TRUE(complete_own_options(options).ok());
  EXPECT_EQ(options.timeout, milliseconds(2000));
  EXPECT_EQ(options.polling, Polling::kCpuFirst);
  options = {};
  options.polling = Polling::kLatencyFirst;
  options.timeout = milliseconds(5);
  options.rails = {"tcp:eth2"};
  ASSERT_TRUE(complete_own_options(options).ok());
  EXPECT_EQ(options.timeout, milliseconds(5));
  EXPECT_EQ(options.polling, Polling::kLatencyFirst);
  EXPECT_EQ(options.rails, std::vector<std::string>{"tcp:eth2"});

  EXPECT_EQ(of_rank0({}, 2), "plan=auto shares= policy=model algorithm=auto");
  options = {};
  options.shares = {3, 1};
  EXPECT_EQ(of_rank0(options, 2), "plan=slice shares=3,1 policy=none algorithm=auto");
  setenv("NEZHA_PLAN", "slice", 1);
  setenv("NEZHA_ALGORITHM", "ring", 1);
  EXPECT_EQ(of_rank0({}, 2), "plan=slice shares=1,1 policy=model algorithm=ring");
  setenv("NEZHA_SHARES", "3,1", 1);
  EXPECT_EQ(of_rank0({}, 2), "plan=slice shares=3,1 policy=none algorithm=ring");
  options = {};
  options.shares = {0.1, 1e6 / 3};
  EXPECT_EQ(of_rank0(options, 2),
            "plan=slice shares=0.1,333333.3333333333 policy=none algorithm=ring");
  options.plan = Plan::kStripe;
  options.shares = {};
  unsetenv("NEZHA_SHARES");
  EXPECT_EQ(of_rank0(options, 2), "plan=stripe shares= policy=model algorithm=ring");
}

TEST_F(SettingsTest, ATimeoutMustBePositive) {
  for (const int ms : {0, -1}) {
    ContextOptions options;
    options.rails = {"tcp:eth0"};
    options.timeout = milliseconds(ms);
    const absl::Status status = complete_own_options(options);
    EXPECT_TRUE(absl::IsInvalidArgument(status));
    expect_mentions(status, {"timeout", std::to_string(ms)});
  }
}

TEST_F(SettingsTest, ARankWithoutSettingsTakesThoseOfRank0) {
  ContextOptions options;
  options.rails = {"a", "b"};
  Algorithm algorithm = Algorithm::kAuto;
  const AgreedSettings settings =
      adopted("plan=slice shares=0.1,333333.3333333333 policy=none algorithm=direct");
  ASSERT_TRUE(settings.apply(options, algorithm).ok());
  EXPECT_EQ(options.plan, Plan::kSlice);
  EXPECT_EQ(options.shares, (std::vector<double>{0.1, 1e6 / 3})) << "to the last bit";
  EXPECT_EQ(algorithm, Algorithm::kDirect);
  EXPECT_EQ(settings.encode(),
            "plan=slice shares=0.1,333333.3333333333 policy=none algorithm=direct");
}

TEST_F(SettingsTest, ARankThatIsGivenTheSameAgrees) {
  setenv("NEZHA_ALGORITHM", "direct", 1);
  ContextOptions own;
  own.plan = Plan::kSlice;
  own.shares = {2, 1};
  adopted("plan=slice shares=2,1 policy=none algorithm=direct", own);
}

TEST_F(SettingsTest, AMismatchNamesTheSettingAndItsSource) {
  ContextOptions own;
  own.plan = Plan::kSlice;
  absl::Status status = refusal("plan=stripe shares= policy=none algorithm=auto", own);
  EXPECT_TRUE(absl::IsFailedPrecondition(status));
  expect_mentions(status,
                  {"ContextOptions::plan", "'slice' at rank 3", "'stripe' at rank 0", "differ"});
  own = {};
  own.shares = {1, 2};
  expect_mentions(refusal("plan=slice shares=2,1 policy=none algorithm=auto", own),
                  {"ContextOptions::shares", "'1,2' at rank 3", "'2,1' at rank 0"});
  setenv("NEZHA_ALGORITHM", "ring", 1);
  expect_mentions(refusal("plan=stripe shares= policy=none algorithm=auto"),
                  {"NEZHA_ALGORITHM", "'ring' at rank 3", "'auto' at rank 0"});
}

TEST_F(SettingsTest, SharesThatAreGivenAreNotLearned) {
  ContextOptions options;
  options.rails = {"a", "b"};
  Algorithm algorithm = Algorithm::kAuto;
  const auto applied = [&](const ContextOptions& own) {
    AgreedSettings settings(own);
    settings.complete(2);
    return settings.apply(options, algorithm);
  };
  ContextOptions own;
  own.shares = {2, 1};
  own.policy = BalancePolicy::kNone;
  EXPECT_TRUE(applied(own).ok());
  setenv("NEZHA_POLICY", "paper", 1);
  own.policy.reset();
  expect_mentions(applied(own),
                  {"ContextOptions::shares", "NEZHA_POLICY", "(paper)", "one of them"});
  own = {};
  own.plan = Plan::kSlice;
  EXPECT_TRUE(applied(own).ok()) << "the equal shares come from no setting";
}

TEST_F(SettingsTest, ARailMayHaveNoShare) {
  ContextOptions options;
  options.rails = {"a", "b"};
  Algorithm algorithm = Algorithm::kAuto;
  const auto status =
      adopted("plan=slice shares=100,0 policy=none algorithm=auto").apply(options, algorithm);
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_EQ(options.shares, (std::vector<double>{100, 0}));
}

TEST_F(SettingsTest, InvalidSharesAreReportedWithTheirSource) {
  const auto refused = [](const std::string& rank0, const ContextOptions& own = {}) {
    ContextOptions options;
    options.rails = {"a", "b"};
    Algorithm algorithm = Algorithm::kAuto;
    return adopted(rank0, own).apply(options, algorithm);
  };
  setenv("NEZHA_SHARES", "1,2,3", 1);
  expect_mentions(refused("plan=stripe shares=1,2,3 policy=none algorithm=auto"),
                  {"NEZHA_SHARES with the plan stripe", "name the plan slice"});
  expect_mentions(refused("plan=slice shares=1,2,3 policy=none algorithm=auto"),
                  {"NEZHA_SHARES: 3 parts for 2 rails", "give one for each"});
  clear();
  ContextOptions own;
  own.shares = {1};
  expect_mentions(refused("plan=slice shares=1 policy=none algorithm=auto", own),
                  {"ContextOptions::shares: 1 part for 2 rails"});
  expect_mentions(refused("plan=slice shares=1,2,3 policy=none algorithm=auto"),
                  {"rank 0's shares: 3 parts for 2 rails"});
}

TEST_F(SettingsTest, WhatRank0HasIsNotTrusted) {
  for (const char* bad : {"", "plan", "plan=stripe",
                          "plan=stripe shares=", "plan=x shares= policy=none algorithm=auto",
                          "plan=stripe shares=0 policy=none algorithm=auto",
                          "plan=slice shares=0,0 policy=none algorithm=auto",
                          "plan=slice shares=1,-1 policy=none algorithm=auto",
                          "plan=stripe shares= algorithm=x", "=== = =="}) {
    EXPECT_TRUE(absl::IsInvalidArgument(refusal(bad))) << bad;
  }
  for (const char* bad :
       {"plan= shares= policy=none algorithm=auto", "plan=stripe shares= policy=none algorithm=",
        "plan=slice shares= policy=none algorithm=auto",
        "plan=slice shares=1 policy=none algorithm=auto",
        "plan=slice shares=1,2,3 policy=none algorithm=auto",
        "plan=stripe shares=1,1 policy=none algorithm=auto"}) {
    ContextOptions options;
    options.rails = {"a", "b"};
    Algorithm algorithm = Algorithm::kAuto;
    EXPECT_TRUE(absl::IsInvalidArgument(adopted(bad).apply(options, algorithm))) << bad;
  }
}

}  // namespace
}  // namespace nezha
