// SPDX-License-Identifier: Apache-2.0
#include "bench/measurement/measure.h"

#include <array>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "bench/measurement/process_usage.h"
#include "gtest/gtest.h"
#include "tests/unit/bench/fake_runner.h"

namespace nezha::bench {
namespace {

using std::chrono::microseconds;

constexpr size_t kMeasuredRanks = 3;

class BenchmarkTest : public ::testing::Test {
 protected:
  BenchmarkTest() {
    std::string pattern = ::testing::TempDir() + "nezha-measure-XXXXXX";
    path_ = mkdtemp(pattern.data());
    options_.collective = "allreduce";
    options_.size = kMeasuredRanks;
    options_.warmup_iterations = 2;
    options_.iteration_count = 4;
  }
  ~BenchmarkTest() override { std::filesystem::remove_all(path_); }

  // Measures on all ranks, and returns what they throw. `set_up` may change what a rank has.
  Errors errors_of(const RankProgram& set_up) {
    return run_ranks(options_, [&](FakeRunner& runner, Options& options) {
      set_up(runner, options);
      Benchmark benchmark(runner, options, {"eth0", "eth1"});
      results_[static_cast<size_t>(options.rank)] = benchmark.measure(100);
    });
  }
  void measure(const RankProgram& set_up = [](FakeRunner&, Options&) {}) {
    EXPECT_EQ(errors_of(set_up), Errors(kMeasuredRanks));
  }
  // Each operation with tag 0, also of the warm-up, takes time(rank, number).
  void measure_times(const std::function<microseconds(int rank, size_t number)>& time) {
    measure([&](FakeRunner& runner, const Options& options) {
      runner.before = [&, rank = options.rank](const Request& request, size_t number) {
        if (request.tag == 0) *rank_time += time(rank, number);
      };
    });
  }
  // Returns whether the rank finds that one of its results is wrong.
  bool finds_wrong(size_t number, int rank = 1, uint32_t tag = 0) {
    return is_found_at(rank, errors_of([=](FakeRunner& runner, const Options& options) {
                         if (options.rank == rank) runner.spoil(tag, number);
                       }));
  }

  std::string path_;
  Options options_;
  std::vector<Measurement> results_{kMeasuredRanks};
};

TEST_F(BenchmarkTest, EveryRankGetsTheLeastMinimumAndTheLargestOtherPercentiles) {
  options_.iteration_count = 200;
  measure_times([](int rank, size_t number) {
    if (number < 2) return microseconds(1000 * number);  // the warm-up
    if (rank == 0) return microseconds(number == 5 ? 1 : 10);
    if (rank == 1) return microseconds(number % 2 == 0 ? 15 : 20);
    if (number == 150) return microseconds(500);
    return microseconds(number == 7 || number == 9 ? 100 : 10);
  });
  for (const Measurement& result : results_) {
    EXPECT_EQ(result.iterations, 200);
    EXPECT_EQ(result.min, 1);
    EXPECT_EQ(result.p50, 20);
    EXPECT_EQ(result.p99, 100);
    EXPECT_EQ(result.max, 500);
  }
}

TEST_F(BenchmarkTest, AtLeastThreeIterationsFillRank0sTime) {
  using Times = std::array<int, 3>;  // in all, of an iteration, and how many iterations fit
  options_.iteration_count = 0;
  for (const auto& [time, iteration, count] :
       {Times{1000, 10, 100}, Times{1000, 200, 5}, Times{1, 10, 3}}) {
    options_.iteration_time = microseconds(time);
    const int times[] = {iteration, 0, 9000};
    measure_times([&](int rank, size_t) { return microseconds(times[rank]); });
    for (const Measurement& result : results_) EXPECT_EQ(result.iterations, count);
  }
}

TEST_F(BenchmarkTest, SumsBytesAndTakesTheLeastLineRateOfTheRanks) {
  const std::vector<RailBytes> rails[] = {{{"eth0", 100}, {"eth1", 10}}, {{"eth1", 1}}, {}};
  const std::vector<double> rates[] = {{10, 15}, {20}, {100}};
  measure([&](FakeRunner& runner, Options& options) {
    runner.sent_by_each = rails[options.rank];
    options.line_rates = rates[options.rank];
  });
  for (const Measurement& result : results_) {
    EXPECT_EQ(text_of(result.sent), "eth0 400 eth1 44 ");
    EXPECT_EQ(result.line_rate, 20);
  }
}

TEST_F(BenchmarkTest, SumsTheCpuTimeOfTheTimedIterations) {
  std::vector<double> warm(kMeasuredRanks);  // when each rank's warm-up has ended
  measure([&](FakeRunner& runner, const Options& options) {
    runner.before = [](const Request& request, size_t number) {
      const double end = process_cpu_seconds() + (number < 2 ? 0.02 : 0.001);
      while (request.tag == 0 && process_cpu_seconds() < end) continue;
    };
    runner.after = [&, rank = options.rank](const Request& request, size_t number) {
      if (request.tag == 0 && number == 1) warm[static_cast<size_t>(rank)] = process_cpu_seconds();
    };
  });
  for (const Measurement& result : results_) {
    EXPECT_GE(result.cpu_seconds, 3 * 4 * 0.001);
    EXPECT_LE(result.cpu_seconds, 3 * process_cpu_seconds() - warm[0] - warm[1] - warm[2]);
  }
}

TEST_F(BenchmarkTest, TellsWhatTheLibrarySaysOfMessagesOfThatLength) {
  measure();
  EXPECT_EQ(results_[0].elements, 100);
  EXPECT_EQ(results_[0].bytes, 400);
  EXPECT_EQ(results_[0].device, "device of rank 0");
  EXPECT_EQ(results_[0].learned, "learned of 400 bytes");
  options_.collective = "allgather";  // whose vector has a block of each rank
  measure();
  EXPECT_EQ(results_[0].bytes, 1200);
}

TEST_F(BenchmarkTest, AllResultsOfAShortWarmUpAndTwoOfALongOneAreChecked) {
  for (const bool in_place : {false, true}) {
    options_.in_place = in_place;
    options_.warmup_iterations = 10;
    for (const size_t number : {0, 5, 9}) EXPECT_TRUE(finds_wrong(number)) << number;
    options_.warmup_iterations = 11;
    for (const size_t number : {0, 10}) EXPECT_TRUE(finds_wrong(number)) << number;
    EXPECT_FALSE(finds_wrong(5));
  }
}

TEST_F(BenchmarkTest, TheLastResultIsCheckedUnlessItIsInPlace) {
  options_.iteration_count = 1;
  EXPECT_TRUE(finds_wrong(2));
  options_.in_place = true;
  EXPECT_FALSE(finds_wrong(2));
}

TEST_F(BenchmarkTest, NoResultIsCheckedIfTheUserWantsNoChecks) {
  options_.iteration_count = 1;
  options_.verify = false;
  for (const size_t number : {0, 2}) EXPECT_FALSE(finds_wrong(number)) << number;
}

TEST_F(BenchmarkTest, InPlaceARanksBlockLiesInItsPlaceInTheVector) {
  options_.in_place = true;
  for (const auto* name : {"allgather", "reduce_scatter"}) {
    options_.collective = name;
    measure([](FakeRunner& runner, const Options& options) {
      runner.before = [rank = options.rank](const Request& request, size_t) {
        if (request.tag != 0) return;
        const auto* const input = static_cast<const float*>(request.input);
        EXPECT_EQ(std::abs(input - static_cast<float*>(request.output)), 100 * rank);
      };
    });
  }
}

TEST_F(BenchmarkTest, ResultsOfEveryCollectiveAreChecked) {
  for (const auto* name : {"send_recv", "allreduce", "reduce", "broadcast", "allgather",
                           "reduce_scatter", "alltoall", "gather", "scatter"}) {
    for (const bool in_place : {false, true}) {
      options_.collective = name;
      options_.in_place = in_place && options_.collective != "send_recv";  // which refuses it
      SCOPED_TRACE(options_.collective + (in_place ? " in place" : ""));
      measure();
      EXPECT_TRUE(finds_wrong(1, 0));
    }
  }
}

TEST_F(BenchmarkTest, EachThreadHasOperationsOfItsOwn) {
  options_.threads = 2;
  std::atomic<size_t> operations[2] = {0, 0};  // by tag
  measure([&](FakeRunner& runner, const Options&) {
    runner.before = [&](const Request& request, size_t) {
      if (request.tag < 2) ++operations[request.tag];
    };
  });
  for (const auto& count : operations) EXPECT_EQ(count, kMeasuredRanks * (2 + 4));
  EXPECT_EQ(results_[0].iterations, 4);
  EXPECT_TRUE(finds_wrong(1, 1, 1));
}

TEST_F(BenchmarkTest, ABarrierThatIsNotTimedPrecedesEachOperation) {
  options_.barrier = true;
  std::string names;  // of rank 0's operations
  measure([&](FakeRunner& runner, const Options& options) {
    runner.before = [&, rank = options.rank](const Request& request, size_t) {
      if (request.tag != 0) return;
      *rank_time += microseconds(request.collective == "barrier" ? 1000 : 10);
      if (rank == 0) names += request.collective + " ";
    };
  });
  const std::string pair = "barrier allreduce ";
  EXPECT_EQ(names, pair + pair + pair + pair + pair + pair);
  EXPECT_EQ(results_[0].max, 10);
}

TEST_F(BenchmarkTest, Rank0sTraceHasALineForEachTimedIteration) {
  std::string lines = "seconds,bytes,us,learned,sent_eth0,sent_eth1\n";
  measure([&](FakeRunner& runner, Options& options) {
    options.trace = path_ + "/" + std::to_string(options.rank);
    if (options.rank != 0) return;
    runner.sent_by_each = {{"eth0", 100}};
    runner.before = [](const Request& request, size_t number) {
      if (request.tag == 0) *rank_time += microseconds(number);
    };
    runner.after = [&](const Request& request, size_t number) {
      if (request.tag != 0 || number < 2) return;
      absl::StrAppend(&lines, "3600.0000", number < 4 ? "0" : "", number * (number + 1) / 2,
                      ",400,", number, ".0,learned of 400 bytes,", runner.bytes_sent()[0].bytes,
                      ",0\n");
    };
  });
  std::stringstream text;
  text << std::ifstream(path_ + "/0").rdbuf();
  EXPECT_EQ(text.str(), lines);
  EXPECT_FALSE(std::filesystem::exists(path_ + "/1"));
}

TEST_F(BenchmarkTest, ATraceThatCannotBeWrittenIsRefused) {
  options_.trace = path_ + "/missing/trace";
  const std::string why = "--trace " + options_.trace + ": cannot be written";
  EXPECT_EQ(errors_of([](FakeRunner&, Options&) {}), (Errors{why, kGone, kGone}));
}

}  // namespace
}  // namespace nezha::bench
