// SPDX-License-Identifier: Apache-2.0
#include "bench/measurement/replay.h"

#include <algorithm>
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/unit/bench/fake_runner.h"

namespace nezha::bench {
namespace {

using std::chrono::microseconds;

constexpr int kReplayRanks = 2;
constexpr uint32_t kReplayTag = 2;  // of a step's first operation; the next ones follow

class ReplayTest : public ::testing::Test {
 protected:
  ReplayTest() {
    options_.collective = "allreduce";
    options_.size = kReplayRanks;
    options_.warmup_iterations = 2;
    options_.iteration_count = 1;
    options_.steps = {{{microseconds(30), 400}, {microseconds(20), 800}}};
  }

  // Replays on all ranks, and returns what they throw. `set_up` may change what a rank has.
  Errors errors_of(const RankProgram& set_up) {
    return run_ranks(options_, [&](FakeRunner& runner, Options& options) {
      set_up(runner, options);
      Replay replay(runner, options, {"eth0", "eth1"});
      results_[static_cast<size_t>(options.rank)] = replay.measure();
    });
  }
  void measure(const RankProgram& set_up = [](FakeRunner&, Options&) {}) {
    EXPECT_EQ(errors_of(set_up), Errors(kReplayRanks));
  }
  // An operation takes time(rank, elements, number) after those that began before it.
  using Time = std::function<microseconds(int rank, size_t elements, size_t number)>;
  void measure_times(const Time& time) {
    measure([&](FakeRunner& runner, const Options& options) {
      const auto ends = std::make_shared<std::map<uint32_t, std::chrono::nanoseconds>>();  // by tag
      const auto idle = std::make_shared<std::chrono::nanoseconds>();  // from then on
      runner.before = [=, &time, rank = options.rank](const Request& request, size_t number) {
        if (request.tag < kReplayTag) return;
        *idle = std::max(*idle, *rank_time) + time(rank, request.elements, number);
        (*ends)[request.tag] = *idle;
      };
      runner.after = [=](const Request& request, size_t) {
        if (request.tag >= kReplayTag) rank_time = std::max(*rank_time, (*ends)[request.tag]);
      };
    });
  }
  // Returns whether rank 1 finds that one of its results is wrong.
  bool finds_wrong(uint32_t tag, size_t number) {
    return is_found_at(1, errors_of([=](FakeRunner& runner, const Options& options) {
                         if (options.rank == 1) runner.spoil(tag, number);
                       }));
  }

  Options options_;
  std::vector<ReplayResult> results_{kReplayRanks};
};

void expect_spread(const Spread& spread, const std::vector<double>& values) {
  EXPECT_EQ((std::vector<double>{spread.min, spread.p25, spread.p50, spread.p75, spread.max}),
            values);
}

TEST_F(ReplayTest, RunsWholePassesOfTheTraceWithAndWithoutComputation) {
  options_.steps.push_back({{microseconds(0), 200}});
  options_.iteration_count = 3;
  std::map<size_t, size_t> operations;  // of rank 0, by number of elements
  measure([&](FakeRunner& runner, const Options& options) {
    if (options.rank != 0) return;
    runner.before = [&](const Request& request, size_t) { ++operations[request.elements]; };
  });
  for (const ReplayResult& result : results_) {
    EXPECT_EQ(result.steps, 4);
    EXPECT_EQ(result.bytes, (1200 + 200) / 2);
    EXPECT_EQ(result.operations, 1.5);
  }
  // Each step runs once in the warm-up, four times timed, and once to be checked.
  EXPECT_EQ(operations[100], 1 + 4 + 1);
  EXPECT_EQ(operations[200], 1 + 4 + 1);
  EXPECT_EQ(operations[50], 1 + 4 + 1);
}

TEST_F(ReplayTest, AStepsOperationsAllBeginBeforeItWaitsForOne) {
  options_.warmup_iterations = 0;
  std::string events;  // of rank 0
  measure([&](FakeRunner& runner, const Options& options) {
    if (options.rank != 0) return;
    const auto note = [&](const std::string& what) {
      return [&, what](const Request& request, size_t) {
        if (request.tag >= kReplayTag) events += what + std::to_string(request.elements) + " ";
      };
    };
    runner.before = note("+");
    runner.after = note("-");
  });
  const std::string step = "+100 +200 -100 -200 ";
  EXPECT_EQ(events, step + step + step);  // with computation, without, and checked
}

TEST_F(ReplayTest, ComputationHidesCommunication) {
  measure_times(
      [](int, size_t elements, size_t) { return microseconds(elements == 100 ? 90 : 10); });
  for (const ReplayResult& result : results_) {
    EXPECT_EQ(result.computation, 50);
    EXPECT_EQ(result.step.p50, 30 + 90 + 10);
    EXPECT_EQ(result.communication.p50, 90 + 10);
    EXPECT_EQ(result.exposed(), 80);
    EXPECT_EQ(result.hidden(), 20);
  }
}

TEST_F(ReplayTest, EveryRankGetsTheLeastMinimumAndTheLargestOtherPercentiles) {
  options_.iteration_count = 100;
  options_.steps = {{{microseconds(7), 400}}};
  measure_times([](int rank, size_t, size_t number) {
    if (number < 2) return microseconds(1000 * number);  // the warm-up
    const size_t pass = (number - 2) / 2;
    return microseconds(rank == 0 ? 40 + pass / 2 : 100 - pass);
  });
  for (const ReplayResult& result : results_) {
    expect_spread(result.communication, {1, 52, 65, 77, 100});
    expect_spread(result.step, {7 + 1, 7 + 52, 7 + 65, 7 + 77, 7 + 100});
  }
}

TEST_F(ReplayTest, TimesAreTheMeansOfTheTracesSteps) {
  options_.steps = {{{microseconds(10), 400}}, {{microseconds(20), 800}}};
  options_.iteration_count = 6;
  measure_times([](int rank, size_t elements, size_t) {
    return microseconds((rank + 1) * (elements == 100 ? 30 : 50));
  });
  for (const ReplayResult& result : results_) {
    expect_spread(result.communication, {40, 80, 80, 80, 80});
    expect_spread(result.step, {15 + 40, 15 + 80, 15 + 80, 15 + 80, 15 + 80});
    EXPECT_EQ(result.computation, 15);
  }
}

TEST_F(ReplayTest, AtLeastThreePassesFillRank0sTime) {
  options_.steps = {{{microseconds(0), 400}}, {{microseconds(0), 800}}};
  options_.iteration_count = 0;
  options_.iteration_time = microseconds(1000);
  const auto time = [](int rank, size_t, size_t) { return microseconds(rank == 0 ? 10 : 9000); };
  measure_times(time);
  for (const ReplayResult& result : results_) EXPECT_EQ(result.steps, 50);
  options_.iteration_time = microseconds(1);
  measure_times(time);
  for (const ReplayResult& result : results_) EXPECT_EQ(result.steps, 2 * 3);
}

TEST_F(ReplayTest, SumsBytesOfTheTimedStepsOverTheRanks) {
  measure([](FakeRunner& runner, const Options& options) {
    runner.sent_by_each = {{"eth1", 1}};
    if (options.rank == 0) runner.sent_by_each = {{"eth0", 100}, {"eth1", 10}};
  });
  for (const ReplayResult& result : results_) EXPECT_EQ(text_of(result.sent), "eth0 400 eth1 44 ");
}

TEST_F(ReplayTest, TakesTheLongestComputationOfTheRanks) {
  measure([](FakeRunner&, Options& options) {
    // This stands for a rank that sleeps for longer than it should.
    if (options.rank == 0) options.steps[0][0].gap += microseconds(5);
  });
  for (const ReplayResult& result : results_) EXPECT_EQ(result.computation, 55);
}

TEST_F(ReplayTest, ResultsOfTheWarmUpAndOfTheLastStepsAreChecked) {
  for (const bool in_place : {false, true}) {
    options_.in_place = in_place;
    for (const uint32_t tag : {kReplayTag, kReplayTag + 1}) {
      for (const size_t number : {0, 1, 4}) EXPECT_TRUE(finds_wrong(tag, number)) << number;
    }
  }
  options_.verify = false;
  for (const size_t number : {0, 1, 4}) EXPECT_FALSE(finds_wrong(kReplayTag, number)) << number;
}

TEST_F(ReplayTest, EachOfTheTracesStepsIsChecked) {
  options_.warmup_iterations = 0;
  options_.steps.push_back({{microseconds(0), 200}});
  EXPECT_TRUE(finds_wrong(kReplayTag, 4)) << "the first step after two of each";
  EXPECT_TRUE(finds_wrong(kReplayTag, 5)) << "the second one";
}

// Its operations run in the foreground only.
struct ForegroundRunner final : FakeRunner {
  using FakeRunner::FakeRunner;
  std::unique_ptr<AsyncOperation> prepare_async(const Request&) override { return nullptr; }
};

TEST_F(ReplayTest, ALibraryWithoutOperationsInTheBackgroundIsRefused) {
  FakeGroup group(1);
  ForegroundRunner runner(group, 0);
  EXPECT_THROW(Replay(runner, options_, {}), std::runtime_error);
}

TEST_F(ReplayTest, ExposedTimeIsWhatAStepTakesBeyondItsComputation) {
  ReplayResult result;
  result.step.p50 = 70;
  result.communication.p50 = 50;
  result.computation = 40;
  EXPECT_EQ(result.exposed(), 30);
  EXPECT_EQ(result.hidden(), 20);
  result.computation = 75;
  EXPECT_EQ(result.exposed(), 0);
  EXPECT_EQ(result.hidden(), 50);
  result.computation = 10;
  EXPECT_EQ(result.exposed(), 60);
  EXPECT_EQ(result.hidden(), 0);
}

}  // namespace
}  // namespace nezha::bench
