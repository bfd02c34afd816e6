// SPDX-License-Identifier: Apache-2.0
// Ranks that join over rails on loopback. context_impl_test.cc tests devices that cannot be
// opened.
#include "context/joining.h"

#include <gloo/rendezvous/hash_store.h>

#include <chrono>
#include <cstdlib>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "common/environment.h"
#include "common/net/address.h"
#include "common/port_range.h"
#include "gtest/gtest.h"
#include "nezha/errors.h"

namespace nezha {
namespace {

using ::gloo::rendezvous::HashStore;
using std::chrono::milliseconds;

constexpr const char* kFlareOnLoopback = "flare:lo@127.0.0.1:7100";

struct JoiningRank {
  explicit JoiningRank(nezha::Setup given) : setup(std::move(given)) {}
  // It has an endpoint of its own, so that several ranks can be in one process.
  JoiningRank(std::shared_ptr<StoreDirectory::Store> store, ContextOptions options)
      : JoiningRank(nezha::Setup(std::move(store), std::move(options))) {
    setup.endpoint = *Endpoint::create();
  }
  void join() {
    joining.prepare();
    joining.publish();
  }
  std::map<std::string, std::string> addresses() const {  // by rail name
    return roster.own_record().devices;
  }

  nezha::Setup setup;
  Roster roster{setup, [] { return absl::OkStatus(); }};
  Joining joining{setup, roster};
};

class JoiningTest : public ::testing::Test {
 protected:
  using Rails = std::vector<std::string>;

  JoiningTest() { clear(); }
  ~JoiningTest() override { clear(); }
  static void clear() {
    for (const auto& variable : environment_table()) unsetenv(std::string(variable.name).c_str());
  }
  static ContextOptions options(int rank, Rails rails = {"tcp:lo"}) {
    ContextOptions options;
    options.rank = rank;
    options.size = 2;
    options.rails = std::move(rails);
    return options;
  }
  static ContextOptions planned(int rank, Plan plan) {
    ContextOptions planned = options(rank);
    planned.plan = plan;
    return planned;
  }
  // What the rank throws as it joins.
  template <typename Error>
  std::string error_of(ContextOptions options) const {
    JoiningRank rank(store_, std::move(options));
    try {
      rank.join();
      ADD_FAILURE() << "it has joined";
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  }
  // What rank 1 says of rank 0.
  std::string disagreement(ContextOptions rank0, ContextOptions rank1) {
    store_ = std::make_shared<HashStore>();
    JoiningRank(store_, std::move(rank0)).join();
    return error_of<IoError>(std::move(rank1));
  }
  static void expect_mentions(const std::string& what, const std::vector<std::string>& parts) {
    for (const std::string& part : parts) EXPECT_TRUE(absl::StrContains(what, part)) << what;
  }

  std::shared_ptr<HashStore> store_ = std::make_shared<HashStore>();
};

TEST_F(JoiningTest, OtherRanksTakeOverTheContextAndTheSettingsOfRank0) {
  const Rails rails{"tcp:lo?rail=a", "tcp:lo?rail=b"};
  ContextOptions with_shares = options(0, rails);
  with_shares.shares = {3, 1};
  setenv("NEZHA_ALGORITHM", "ring", 1);
  JoiningRank rank0(store_, with_shares);
  rank0.join();
  clear();
  JoiningRank rank1(store_, options(1, rails));
  rank1.join();
  EXPECT_NE(rank0.setup.job, UniqueId());
  EXPECT_EQ(rank1.setup.job, rank0.setup.job);
  EXPECT_EQ(rank1.setup.options.plan, Plan::kSlice);
  EXPECT_EQ(rank1.setup.options.shares, with_shares.shares);
  EXPECT_EQ(rank1.setup.algorithm, Algorithm::kRing);
  EXPECT_EQ(rank1.setup.settings, rank0.setup.settings);
}

TEST_F(JoiningTest, ARank0ThatNeverPublishesIsNamed) {
  JoiningRank rank0(store_, options(0));
  rank0.joining.prepare();
  ContextOptions impatient = options(1);
  impatient.timeout = milliseconds(50);
  try {
    JoiningRank(store_, impatient).join();
    ADD_FAILURE() << "rank 0 has published nothing";
  } catch (const TimeoutError& error) {
    expect_mentions(error.what(), {"rank 1 of 2", "rank 0 has not appeared in the store"});
    EXPECT_EQ(error.ranks(), std::vector<int>{0});
  }
}

TEST_F(JoiningTest, RanksThatKnowTheirContextNeedNoRank0) {
  constexpr UniqueId kKnown{5, 6};
  JoiningRank rank1(nezha::Setup(*Endpoint::create(), std::make_shared<StoreDirectory>(store_),
                                 options(1), kKnown));
  rank1.join();
  EXPECT_EQ(rank1.setup.job, kKnown);
  EXPECT_EQ(rank1.setup.options.plan, Plan::kAuto);
}

TEST_F(JoiningTest, SettingsThatDifferAreNamedWithBothValues) {
  ContextOptions larger = options(1);
  larger.size = 3;
  expect_mentions(disagreement(options(0), larger),
                  {"rank 1 of 3", "differ: the size is 3 at rank 1 and 2 at rank 0"});
  expect_mentions(
      disagreement(planned(0, Plan::kStripe), planned(1, Plan::kSlice)),
      {"rank 1 of 2", "ContextOptions::plan is 'slice' at rank 1 and 'stripe' at rank 0"});
}

TEST_F(JoiningTest, ASwitchRailIsOnAllRanksInOneWay) {
  const Rails alone{kFlareOnLoopback};
  const Rails beside{"tcp:lo", kFlareOnLoopback};
  expect_mentions(disagreement(options(0), options(1, alone)),
                  {"rank 0 has no flare rail and rank 1 has a flare rail alone"});
  expect_mentions(disagreement(options(0, beside), options(1, alone)),
                  {"rank 0 has a flare rail beside others and rank 1 has a flare rail alone"});
  EXPECT_NO_THROW(JoiningRank(store_, options(1, beside)).join());
}

// Which rails auto finds depends on the machine, so the test names them as if it had found them.
TEST_F(JoiningTest, SlicesNeedTheSameRailsIfAutoFindsThem) {
  const ChosenInterfaces found{{"10.0.0.0-24", "eth5"}};
  const auto join_rank0 = [&](Plan plan) {
    store_ = std::make_shared<HashStore>();
    JoiningRank rank0(store_, planned(0, plan));
    rank0.setup.chosen = found;
    rank0.join();
  };
  join_rank0(Plan::kStripe);
  EXPECT_NO_THROW(JoiningRank(store_, options(1)).join());
  join_rank0(Plan::kSlice);
  expect_mentions(error_of<IoError>(options(1)),
                  {"auto finds rails that are named at rank 1 and 10.0.0.0-24 at rank 0"});
  JoiningRank alike(store_, options(1));
  alike.setup.chosen = found;
  EXPECT_NO_THROW(alike.join());
}

TEST_F(JoiningTest, PublishesWhereItIsReachedOnceItIsToldTo) {
  JoiningRank rank0(store_, options(0, {"tcp:lo?rail=a&streams=2"}));
  rank0.joining.prepare();
  EXPECT_ANY_THROW(store_->wait({Record::key(0)}, milliseconds(1)));
  rank0.joining.publish();
  const std::vector<char> text = store_->get(Record::key(0));
  const auto record = Record::decode({text.data(), text.size()});
  ASSERT_TRUE(record.ok()) << record.status();
  EXPECT_EQ(record->process, rank0.setup.endpoint->process());
  EXPECT_EQ(record->describe(0), rank0.setup.self);
  EXPECT_EQ(record->devices, rank0.addresses());
  EXPECT_TRUE(record->devices.contains("a") && record->devices.contains("a+2"));
}

TEST_F(JoiningTest, ContextsOfOneProcessShareItsEndpointAndItsRails) {
  JoiningRank one(nezha::Setup(store_, options(0)));
  JoiningRank other(nezha::Setup(std::make_shared<HashStore>(), options(0)));
  one.join();
  other.join();
  EXPECT_NE(one.setup.job, other.setup.job);
  EXPECT_EQ(one.setup.endpoint, other.setup.endpoint);
  EXPECT_EQ(one.setup.rails, other.setup.rails);
}

TEST_F(JoiningTest, ASwitchRailAloneYieldsATcpRailOnItsInterface) {
  const std::string flare = "flare:lo@127.0.0.1:7100?rail=blue&address=127.0.0.1";
  JoiningRank alone(store_, options(0, {flare}));
  alone.joining.prepare();
  EXPECT_EQ(alone.setup.options.rails, Rails{"tcp:lo?rail=blue&address=127.0.0.1"});
  EXPECT_TRUE(alone.addresses().contains("blue"));
  EXPECT_TRUE(alone.setup.is_switch_alone && alone.setup.switch_rail.has_value());
  JoiningRank beside(store_, options(0, {flare, "tcp:lo?rail=a"}));
  beside.joining.prepare();
  EXPECT_EQ(beside.setup.options.rails, Rails{"tcp:lo?rail=a"});
  EXPECT_FALSE(beside.setup.is_switch_alone);
  EXPECT_TRUE(beside.setup.switch_rail.has_value());
}

TEST_F(JoiningTest, WhatMakesNoSenseIsAnInvalidArgument) {
  const std::map<std::string, std::string> wrong{
      {"flare:lo@127.0.0.1:7101", "a context takes one flare rail at most"},
      {"flare:nowhere", "not of the form flare:INTERFACE@ADDRESS:PORT"},
      {"tcp:lo?streams=0", "no number from 1 to"}};
  for (const auto& [rail, why] : wrong) {
    expect_mentions(error_of<InvalidArgument>(options(0, {kFlareOnLoopback, rail})),
                    {"rank 0 of 2", "rail '" + rail + "'", why});
  }
  ContextOptions no_ports = options(0);
  no_ports.ports = "few";
  expect_mentions(error_of<InvalidArgument>(no_ports), {"ContextOptions::ports is 'few'"});
  setenv("NEZHA_TIMEOUT", "soon", 1);
  expect_mentions(error_of<InvalidArgument>(options(0)), {"NEZHA_TIMEOUT is 'soon'"});
}

// The arguments are right, and may do another time.
TEST_F(JoiningTest, APortThatIsTakenIsAnIoError) {
  JoiningRank rank0(store_, options(0));
  rank0.join();
  const uint16_t taken = net::Address::parse(rank0.addresses().at("lo"))->port();
  ContextOptions same = options(1);
  same.ports = PortRange{taken, taken}.str();
  expect_mentions(error_of<IoError>(same), {"rank 1 of 2", "rail 'tcp:lo'", "no port of"});
}

}  // namespace
}  // namespace nezha
