// SPDX-License-Identifier: Apache-2.0
#include "control/timer.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace nezha {
namespace {

constexpr uint64_t kBytes = 8 << 20;

TEST(SizeClass, IsTheBinaryLogarithm) {
  EXPECT_EQ(size_class_of(0), 0);
  EXPECT_EQ(size_class_of(1), 0);
  EXPECT_EQ(size_class_of(2), 1);
  EXPECT_EQ(size_class_of(3), 1);
  EXPECT_EQ(size_class_of((1 << 20) - 1), 19);
  EXPECT_EQ(size_class_of(1 << 20), 20);
  EXPECT_EQ(size_class_of(~uint64_t{0}), 63);
}

TEST(SizeClass, TheNearestIsTheSmallerOfTwo) {
  const std::map<SizeClass, int> entries{{10, 1}, {14, 2}};
  EXPECT_EQ(nearest(entries, 3)->second, 1);
  EXPECT_EQ(nearest(entries, 12)->second, 1);
  EXPECT_EQ(nearest(entries, 13)->second, 2);
  EXPECT_EQ(nearest(entries, 14)->second, 2);
  EXPECT_EQ(nearest(entries, 60)->second, 2);
  const std::map<SizeClass, int> none;
  EXPECT_EQ(nearest(none, 3), none.end());
}

Reading reading(uint64_t ordinal, LaneTimes lanes, uint32_t allocation = 1,
                uint64_t bytes = kBytes) {
  return {{7, ordinal}, bytes, allocation, std::move(lanes)};
}

// Returns the windows of operations that the ranks enter up to `spread` apart. Readings come in any
// order within a few operations.
std::vector<Window> run(int ranks, int operations, Nanos spread, uint32_t seed) {
  std::mt19937 random(seed);
  std::mt19937 work(1);  // the same whatever the ranks' lateness
  Timer timer(ranks, 2);
  std::vector<Window> windows;
  std::vector<std::pair<int, Reading>> sent;
  for (int i = 1; i <= operations; ++i) {
    const LaneTimes lanes{50'000'000 + static_cast<Nanos>(work() % 1'000'000),
                          40'000'000 + static_cast<Nanos>(work() % 900'000)};
    LaneTimes entered(static_cast<size_t>(ranks));
    for (Nanos& time : entered) time = spread == 0 ? 0 : static_cast<Nanos>(random()) % spread;
    const Nanos last = *std::max_element(entered.begin(), entered.end());
    for (int rank = 0; rank < ranks; ++rank) {
      const Nanos waited = last - entered[static_cast<size_t>(rank)];
      sent.emplace_back(rank,
                        reading(static_cast<uint64_t>(i), {lanes[0] + waited, lanes[1] + waited}));
    }
    if (i % 10 != 0) continue;
    std::shuffle(sent.begin(), sent.end(), random);
    for (const auto& [rank, one] : sent) {
      const auto window = timer.add(rank, one);
      EXPECT_TRUE(window.ok()) << window.status();
      if (window.ok() && *window) windows.push_back(**window);
    }
    sent.clear();
  }
  return windows;
}

TEST(Timer, LatenessOfRanksDoesNotCount) {
  const std::vector<Window> punctual = run(5, 40, 0, 1);
  const std::vector<Window> late = run(5, 40, 300 * kMillisecond, 2);
  ASSERT_EQ(punctual.size(), 4);
  ASSERT_EQ(late.size(), 4);
  for (size_t i = 0; i < late.size(); ++i) {
    EXPECT_EQ(late[i].operations, 10);
    EXPECT_EQ(late[i].bytes, kBytes);
    EXPECT_EQ(late[i].size_class, 23);
    for (size_t lane = 0; lane < 2; ++lane) {
      EXPECT_EQ(late[i].lanes[lane].mean, punctual[i].lanes[lane].mean);
      EXPECT_EQ(late[i].lanes[lane].error, punctual[i].lanes[lane].error);
    }
    EXPECT_EQ(slowest(late[i]), late[i].lanes[0].mean);
  }
}

// Returns the window of operations of three ranks. `idle` is each rank's idle time before each
// operation. Another rank takes longer each time.
Window window_in_turns(const LaneTimes& idle, uint64_t bytes = 16 << 10, Nanos unit = 1) {
  Timer timer(3, 2);
  for (uint64_t i = 1; i <= 10; ++i) {
    for (int rank = 0; rank < 3; ++rank) {
      const bool is_late = i % 3 == static_cast<uint64_t>(rank);
      Reading one =
          reading(i, {unit * (is_late ? 160 : 100), unit * (is_late ? 80 : 50)}, 1, bytes);
      one.idle = idle[static_cast<size_t>(rank)];
      const auto window = timer.add(rank, one);
      if (window.ok() && *window) return **window;
    }
  }
  ADD_FAILURE() << "no window";
  return {};
}

TEST(Timer, LatenessThatOneOperationLeavesToTheNextCounts) {
  const Window at_once = window_in_turns({60, 20, 35});
  EXPECT_EQ(at_once.lanes[0].mean, 119);  // thirds are cut off
  EXPECT_EQ(at_once.lanes[1].mean, 58);
  for (const Nanos idle : {Nanos{120}, std::numeric_limits<Nanos>::max()}) {
    const Window with_pauses = window_in_turns({0, idle, 0});
    EXPECT_EQ(with_pauses.lanes[0].mean, 100);
    EXPECT_EQ(with_pauses.lanes[1].mean, 50);
  }
  EXPECT_EQ(window_in_turns({0, 0, 0}, (128 << 10) - 1).lanes[1].mean, 58);
  EXPECT_EQ(window_in_turns({0, 0, 0}, 128 << 10).lanes[1].mean, 60);
  // If operations take a millisecond, ranks may be idle for an eighth of that, not a third.
  const Nanos unit = 10 * kMicrosecond;
  EXPECT_GT(window_in_turns({0, 40 * unit, 0}, 16 << 10, unit).lanes[0].mean, 119 * unit);
  EXPECT_EQ(window_in_turns({0, 50 * unit, 0}, 16 << 10, unit).lanes[0].mean, 100 * unit);
}

// Lateness delays all lanes of a rank alike. The ratio of the lanes' times is therefore that of
// their minima over ranks, and the slowest lane takes as long as the operations took.
TEST(Timer, LatenessDoesNotChangeTheRatioOfLanes) {
  constexpr Nanos kLate = 60;
  Timer timer(2, 2);
  std::optional<Window> window;
  for (uint64_t i = 1; i <= Timer::kOperations; ++i) {
    for (int rank = 0; rank < 2; ++rank) {
      const Nanos late = rank == static_cast<int>(i % 2) ? kLate : 0;
      Reading it = reading(i, {100 + late, 30 + late}, 1, 1 << 20);
      it.idle = 0;
      auto told = timer.add(rank, it);
      ASSERT_TRUE(told.ok()) << told.status();
      if (told->has_value()) window = **told;
    }
  }
  ASSERT_TRUE(window.has_value());
  EXPECT_EQ(window->lanes[0].mean, 100 + kLate / 2);
  EXPECT_EQ(window->lanes[1].mean, 30 * (100 + kLate / 2) / 100);
}

TEST(Timer, AbsurdTimesOfOneRankCountForLittle) {
  Timer timer(2, 1);
  std::optional<Window> window;
  for (uint64_t i = 1; i <= Timer::kOperations; ++i) {
    for (const Nanos took : {Nanos{100}, Nanos{1} << 59}) {
      Reading it = reading(i, {took}, 1, 1 << 20);
      it.idle = 0;
      auto told = timer.add(took == 100 ? 0 : 1, it);
      ASSERT_TRUE(told.ok()) << told.status();
      if (told->has_value()) window = **told;
    }
  }
  ASSERT_TRUE(window.has_value());
  EXPECT_EQ(window->lanes[0].mean, 400);
}

// The average idle time of many ranks hardly shows one rank that is very late.
TEST(Timer, TheLatenessOfOneRankAmongManyDoesNotCount) {
  constexpr Nanos kTakes = 100'000;
  for (const int ranks : {3, 9, 16, 64}) {
    for (const Nanos late : {2 * kTakes, 300'000'000L}) {
      Timer timer(ranks, 1);
      std::optional<Window> window;
      for (uint64_t i = 1; i <= Timer::kOperations; ++i) {
        for (int rank = 0; rank < ranks; ++rank) {
          const bool is_late = rank == ranks - 1;
          Reading it = reading(i, {is_late ? kTakes : kTakes + late}, 1, 16 << 10);
          it.idle = is_late ? late : 0;
          auto told = timer.add(rank, it);
          ASSERT_TRUE(told.ok()) << told.status();
          if (told->has_value()) window = **told;
        }
      }
      ASSERT_TRUE(window.has_value());
      EXPECT_EQ(window->lanes[0].mean, kTakes) << ranks << " ranks, " << late;
    }
  }
}

TEST(Timer, AnOverlappingOperationDoesNotCountWhateverItsIdleTime) {
  Timer timer(2, 1);
  for (uint64_t i = 1; i <= 20; ++i) {
    Reading one = reading(i, {100});
    one.idle = 0;
    ASSERT_TRUE(timer.add(0, one).ok());
    one.lanes = {0};
    const auto window = timer.add(1, one);
    ASSERT_TRUE(window.ok());
    EXPECT_FALSE(window->has_value());
  }
}

// Returns one window of operations that took `times` on the one rank's one lane.
Window window_of(const LaneTimes& times, const std::vector<uint64_t>& bytes = {}) {
  Timer timer(1, 1);
  timer.set_operations(size_class_of(bytes.empty() ? kBytes : bytes[0]),
                       static_cast<int>(times.size() == 7 ? 3 : times.size()));
  for (size_t i = 0; i < times.size(); ++i) {
    const auto window =
        timer.add(0, reading(i + 1, {times[i]}, 1, bytes.empty() ? kBytes : bytes[i]));
    if (window.ok() && *window) return **window;
  }
  ADD_FAILURE() << "no window";
  return {};
}

TEST(Timer, ThreeOutliersOfTenDoNotCount) {
  EXPECT_EQ(window_of({100, 5000, 100, 99, 9000, 100, 100, 7000, 99, 101}).lanes[0].mean, 100);
  EXPECT_EQ(window_of({100, 1, 101, 100, 2, 100, 100, 3, 99, 101}).lanes[0].mean, 100);
  const Window grown = window_of({100, 9000, 9000, 100, 100, 100, 100});
  EXPECT_EQ(grown.lanes[0].mean, 100);
  EXPECT_EQ(grown.operations, 7);
  EXPECT_EQ(window_of({100}).lanes[0].mean, 100);
}

TEST(Timer, SizesAreAveragedAsTheirDurations) {
  const uint64_t small = 9'000'000, large = 16'000'000;
  const Window window =
      window_of({90, 90, 90, 160, 90, 90, 90, 160, 90, 90},
                {small, small, small, large, small, small, small, large, small, small});
  EXPECT_EQ(window.bytes, small);
  EXPECT_EQ(window.lanes[0].mean, 90);
  EXPECT_EQ(window.lanes[0].error, 0);
}

TEST(Timer, TheErrorOfTheMeanIsThatOfManyWindows) {
  std::mt19937 random(3);
  std::normal_distribution<double> noise(1e6, 5e4);
  double sum = 0, squares = 0, errors = 0;
  constexpr int kWindows = 400;
  for (int i = 0; i < kWindows; ++i) {
    LaneTimes times(10);
    for (Nanos& time : times) time = static_cast<Nanos>(noise(random));
    const LaneTime lane = window_of(times).lanes[0];
    sum += static_cast<double>(lane.mean);
    squares += static_cast<double>(lane.mean) * static_cast<double>(lane.mean);
    errors += static_cast<double>(lane.error);
  }
  const double deviation = std::sqrt(squares / kWindows - (sum / kWindows) * (sum / kWindows));
  EXPECT_NEAR(errors / kWindows / deviation, 1, 0.25);
}

TEST(Timer, AWindowIsOfOneClassAndOneAllocation) {
  Timer timer(1, 1);
  timer.set_operations(10, 2);
  timer.set_operations(11, 2);
  uint64_t ordinal = 0;
  const auto add = [&](uint64_t bytes, uint32_t allocation) {
    return timer.add(0, reading(++ordinal, {5}, allocation, bytes))->has_value();
  };
  EXPECT_FALSE(add(1024, 1));
  EXPECT_FALSE(add(2048, 1));
  EXPECT_FALSE(add(1024, 2));
  EXPECT_FALSE(add(1024, 1)) << "its allocation is over";
  EXPECT_TRUE(add(2047, 2));
  EXPECT_TRUE(add(4095, 1));
  EXPECT_FALSE(add(0, 2));
  EXPECT_FALSE(add(1024, 0)) << "the class had no allocation of its own";
  EXPECT_FALSE(add(1024, 2));
  EXPECT_TRUE(add(1024, 2));
}

TEST(Timer, ReadingsBeforeTheFirstAllocationAreInNoWindow) {
  Timer timer(1, 1);
  timer.set_operations(size_class_of(kBytes), 2);
  for (uint64_t i = 1; i <= 5; ++i) {
    EXPECT_FALSE(timer.add(0, reading(i, {1'000'000}, 0))->has_value());
  }
  EXPECT_FALSE(timer.add(0, reading(6, {5}, 1))->has_value());
  EXPECT_FALSE(timer.add(0, reading(7, {1'000'000}, 0))->has_value());
  const auto window = timer.add(0, reading(8, {5}, 1));
  ASSERT_TRUE(window.ok() && *window);
  EXPECT_EQ((*window)->lanes[0].mean, 5);
}

// The rank without a usable measurement may be any of them, and may report first or last.
TEST(Timer, LeavesOutAnOperationWithoutTimesFromARank) {
  Timer timer(3, 2);
  timer.set_operations(size_class_of(kBytes), 1);
  uint64_t ordinal = 0;
  for (int silent = 0; silent < 3; ++silent) {
    ++ordinal;
    for (int rank = 0; rank < 3; ++rank) {
      const LaneTimes lanes = rank == silent ? LaneTimes{0, 0} : LaneTimes{50, 0};
      const auto window = timer.add(rank, reading(ordinal, lanes));
      ASSERT_TRUE(window.ok()) << window.status();
      EXPECT_FALSE(*window);
    }
  }
  EXPECT_EQ(timer.pending(), 0);
  ++ordinal;
  for (int rank = 0; rank < 3; ++rank) {
    const auto window = timer.add(rank, reading(ordinal, {50 + rank, 0}));
    ASSERT_TRUE(window.ok()) << window.status();
    EXPECT_EQ(window->has_value(), rank == 2);
    if (*window) {
      EXPECT_EQ((*window)->lanes[0].mean, 50);
    }
  }
}

TEST(Timer, ReportsALongRunOfSilentOperations) {
  Timer timer(1, 2);
  uint64_t ordinal = 0;
  const auto silent_windows = [&](int operations, const LaneTimes& lanes) {
    int windows = 0;
    for (int i = 0; i < operations; ++i) {
      const auto told = timer.add(0, reading(++ordinal, lanes, 3));
      EXPECT_TRUE(told.ok()) << told.status();
      if (!told.ok() || !told->has_value() || (*told)->operations > 0) continue;
      ++windows;
      EXPECT_EQ((*told)->allocation, 3U);
      EXPECT_EQ((*told)->size_class, size_class_of(kBytes));
      EXPECT_EQ(took_part(**told), 0U);
    }
    return windows;
  };
  EXPECT_EQ(silent_windows(Timer::kSilent - 1, {0, 0}), 0);
  EXPECT_EQ(silent_windows(1, {1'000, 1'000}), 0);  // the count begins anew
  EXPECT_EQ(silent_windows(Timer::kSilent - 1, {0, 0}), 0);
  EXPECT_EQ(silent_windows(1, {0, 0}), 1);
  EXPECT_EQ(silent_windows(2 * Timer::kSilent, {0, 0}), 2);
}

TEST(Timer, ForgetsTheOldestOperationThatSomeRankDoesNotTellOf) {
  Timer timer(2, 1);
  for (uint64_t i = 1; i <= 3 * Timer::kPending + 1; ++i) {
    ASSERT_TRUE(timer.add(0, reading(i, {5})).ok());
    if (i % 3 == 0) {
      ASSERT_TRUE(timer.add(1, reading(i, {5})).ok());
    }
  }
  EXPECT_EQ(timer.pending(), Timer::kPending);
  EXPECT_EQ(timer.forgotten(), Timer::kPending + 1);
  EXPECT_TRUE(timer.add(1, reading(3 * Timer::kPending + 1, {5})).ok());
  EXPECT_EQ(timer.pending(), Timer::kPending - 1);
}

TEST(Timer, RefusesInvalidReadings) {
  Timer timer(2, 2);
  ASSERT_TRUE(timer.add(0, reading(1, {5, 0})).ok());
  const auto refused = [&](int rank, const Reading& one, const char* why) {
    const auto added = timer.add(rank, one);
    ASSERT_FALSE(added.ok());
    EXPECT_NE(added.status().message().find(why), std::string::npos) << added.status();
  };
  refused(2, reading(1, {5, 0}), "no rank");
  refused(-1, reading(1, {5, 0}), "no rank");
  refused(0, reading(1, {5, 0}), "twice");
  refused(1, reading(1, {5}), "has 1 lanes, not 2");
  refused(1, reading(1, {5, -1}), "negative");
  Reading before_its_time = reading(1, {5, 0});
  before_its_time.idle = -1;
  refused(1, before_its_time, "negative");
  refused(1, reading(1, {5, 5}), "whether lane 1 took part");
  refused(1, reading(1, {5, 0}, 2), "by allocation 2");
  refused(1, reading(1, {5, 0}, 1, 9), "says 9 bytes");
  EXPECT_TRUE(timer.add(1, reading(1, {5, 0})).ok());
}

}  // namespace
}  // namespace nezha
