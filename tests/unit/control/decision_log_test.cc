// SPDX-License-Identifier: Apache-2.0
#include "control/decision_log.h"

#include <spdlog/sinks/ostream_sink.h>

#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "control/load_balancer.h"
#include "control/paper_policy.h"
#include "gtest/gtest.h"

namespace nezha {
namespace {

constexpr uint64_t kMiB = 1 << 20;

class DecisionLogTest : public testing::Test {
 protected:
  DecisionLogTest() {
    log_->set_pattern("%v");
    log_->set_level(spdlog::level::debug);
  }
  LoadBalancer balancer() {
    LoadBalancer balancer({"eth0", "eth1"}, std::make_unique<PaperPolicy>(2));
    balancer.tell({log_, [this](bool) {
                     ++asked_;
                     return std::vector<double>{100e6, 0};
                   }});
    return balancer;
  }
  // Returns a window by the class's latest allocation, in which the lanes took `times`
  // milliseconds.
  static Window window(const LoadBalancer& balancer, std::vector<Nanos> times) {
    Window window{20, kMiB, balancer.table().entries.at(20).number, {}, 10};
    for (const Nanos time : times) {
      window.lanes.push_back({time * kMillisecond, time * kMillisecond / 100});
    }
    return window;
  }
  // Returns the lines that were logged since the last call.
  std::vector<std::string> lines() {
    std::vector<std::string> lines;
    for (std::string line; std::getline(text_, line);) lines.push_back(line);
    text_.clear();
    return lines;
  }

  std::stringstream text_;
  RankLog log_ = std::make_shared<spdlog::logger>(
      "rank 0 of 2", std::make_shared<spdlog::sinks::ostream_sink_mt>(text_));
  int asked_ = 0;  // how often the lanes' rates were asked for
};

TEST_F(DecisionLogTest, TellsOfEachDecisionWithWhatLedToIt) {
  LoadBalancer balancer = this->balancer();
  balancer.open(kMiB);
  EXPECT_EQ(lines(),
            std::vector<std::string>{
                "balancer: messages of 1 MiB to 2 MiB begin with eth0 50.0%, eth1 50.0% "
                "(start: these are the first messages of their size); nothing was measured; rates "
                "known: eth0 100.0 MB/s, eth1 unknown"});
  ASSERT_TRUE(balancer.on_window(window(balancer, {10, 20})).has_value());
  EXPECT_EQ(lines(),
            std::vector<std::string>{
                "balancer: messages of 1 MiB to 2 MiB go from eth0 50.0%, eth1 50.0% to "
                "eth0 25.0%, eth1 75.0% (search: one allocation after the other is measured); "
                "measured over 10 operations of 1048576 bytes: eth0 10.000 ms +- 0.100 (52.4 "
                "MB/s), eth1 20.000 ms +- 0.200 (26.2 MB/s); rates known: eth0 100.0 MB/s, eth1 "
                "unknown"});
}

TEST_F(DecisionLogTest, TellsWhichLanesAreLive) {
  LoadBalancer balancer = this->balancer();
  balancer.open(kMiB);
  lines();
  balancer.set_live(lane_bit(1));
  const std::vector<std::string> told = lines();
  ASSERT_EQ(told.size(), 2u);
  EXPECT_EQ(told[0], "balancer: all ranks can use eth1 now, of eth0, eth1");
  EXPECT_NE(told[1].find("go from eth0 50.0%, eth1 50.0% to eth1 100.0% (lanes: a rail was lost or "
                         "has come back); nothing was measured"),
            std::string::npos)
      << told[1];
}

TEST_F(DecisionLogTest, LooksAtNothingWhileNobodyReadsIt) {
  log_->set_level(spdlog::level::info);
  LoadBalancer balancer = this->balancer();
  balancer.open(kMiB);
  ASSERT_TRUE(balancer.on_window(window(balancer, {10, 20})).has_value());
  EXPECT_TRUE(lines().empty());
  EXPECT_EQ(asked_, 0);
}

TEST(DecisionLog, NamesSizes) {
  EXPECT_EQ(sizes_of(0), "1 B to 2 B");
  EXPECT_EQ(sizes_of(9), "512 B to 1 KiB");
  EXPECT_EQ(sizes_of(16), "64 KiB to 128 KiB");
  EXPECT_EQ(sizes_of(62), "4 EiB to 8 EiB");
  EXPECT_EQ(sizes_of(63), "8 EiB and more");
}

}  // namespace
}  // namespace nezha
