// SPDX-License-Identifier: Apache-2.0
// Experiments, their budget and their rests, and the way that a size class settles on by them in a
// network where one of several ways is better.
#include "control/experiment.h"

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bench/programs/lane_simulator.h"
#include "control/fixed_policy.h"
#include "control/load_balancer.h"
#include "control/model_policy.h"
#include "control/table_file.h"
#include "gtest/gtest.h"

namespace nezha {
namespace {

constexpr auto kOther = Algorithm::kHalvingDoubling;
constexpr SizeClass kTriedClass = 14;
constexpr uint64_t kTriedBytes = 16 << 10;
constexpr SizeClass kShortClass = 12;  // has two algorithms too
constexpr uint64_t kShortBytes = 4 << 10;

// ---- Budget, Rests and Experiment by themselves ------------------------------------------------

constexpr double kHome = 100'000;  // nanoseconds that an operation takes by the home

Window window_of(double time, int operations, uint64_t bytes = kTriedBytes) {
  Window window{.size_class = size_class_of(bytes), .bytes = bytes, .lanes = {}, .operations = 0};
  window.lanes = {{.mean = std::llround(time), .error = 0}};
  window.operations = operations;
  return window;
}

Experiment experiment_with(LaneSet lanes) {
  return {Way{Algorithm::kAuto, all_on(0, 3)}, kHome, Way{Algorithm::kAuto, equal_parts(lanes, 3)}};
}

using Verdict = Experiment::Verdict;

TEST(Budget, AffordsAHundredthOfTheTime) {
  Budget budget;
  budget.ran(window_of(kHome, 1000));
  EXPECT_TRUE(budget.affords(490'000));
  EXPECT_FALSE(budget.affords(510'000)) << "an experiment may cost twice what was predicted";
  budget.charge(200'000);
  EXPECT_TRUE(budget.affords(390'000));
  EXPECT_FALSE(budget.affords(410'000));
  EXPECT_DOUBLE_EQ(budget.spent(), 0.002);
}

TEST(Budget, CountsOperationsThatWereNotReported) {
  Budget budget;
  Window window = window_of(kHome, 10);
  window.since_last = 1000;
  budget.ran(window);
  EXPECT_TRUE(budget.affords(490'000));
}

TEST(Rests, LastTwiceAsLongAfterEachLoss) {
  Rests rests;
  const Rests::Key key{kOther, 0b1};
  EXPECT_TRUE(rests.is_due(key));
  for (const int operations : {80, 160, 320, 640, 1280, 2560, 2560}) {
    SCOPED_TRACE(operations);
    rests.lost(key);
    rests.ran(window_of(kHome, operations - 1));
    EXPECT_FALSE(rests.is_due(key));
    rests.ran(window_of(kHome, 1));
    EXPECT_TRUE(rests.is_due(key));
  }
  EXPECT_FALSE(rests.is_fresh(key));
  EXPECT_TRUE(rests.is_fresh({kOther, 0b1, true})) << "more for a lane is another candidate";
}

TEST(Experiment, EndsAfterThreeOperationsThatTakeFarLonger) {
  Experiment experiment = experiment_with(0b010);
  EXPECT_EQ(experiment.window_operations(kTriedClass), 3);
  EXPECT_EQ(experiment.look_at(window_of(1.5 * kHome, 3), kHome, 0), Verdict::kLost);
  EXPECT_NEAR(experiment.cost(), (3 + 3) * 0.5 * kHome, kHome);
}

TEST(Experiment, GoesOnIfAnotherDivisionPromisesLess) {
  Experiment experiment = experiment_with(0b110);
  EXPECT_EQ(experiment.look_at(window_of(1.5 * kHome, 3), kHome, 0.8 * kHome), Verdict::kOpen);
}

TEST(Experiment, IsDecidedByFourMebibytes) {
  constexpr uint64_t kMebibyte = 1 << 20;
  for (const auto& [time, verdict] :
       {std::pair{0.9, Verdict::kWon}, {0.98, Verdict::kLost}, {1.01, Verdict::kLost}}) {
    SCOPED_TRACE(time);
    Experiment experiment = experiment_with(0b010);
    EXPECT_EQ(experiment.look_at(window_of(time * kHome, 3, kMebibyte), kHome, 0), Verdict::kOpen);
    EXPECT_EQ(experiment.look_at(window_of(time * kHome, 4, kMebibyte), kHome, 0), verdict);
  }
}

TEST(Experiment, IsDecidedByAHundredAndSixtyShortOperations) {
  Experiment experiment = experiment_with(0b010);
  EXPECT_EQ(experiment.look_at(window_of(0.9 * kHome, 3), kHome, 0), Verdict::kOpen);
  for (int operations = 10; operations < 160; operations += 10) {
    ASSERT_EQ(experiment.look_at(window_of(0.9 * kHome, 10), kHome, 0), Verdict::kOpen);
  }
  EXPECT_EQ(experiment.look_at(window_of(0.9 * kHome, 10), kHome, 0), Verdict::kWon);
}

TEST(Experiment, AnotherDivisionIsMeasuredAfresh) {
  constexpr uint64_t kMebibyte = 1 << 20;
  Experiment experiment = experiment_with(0b110);
  ASSERT_EQ(experiment.look_at(window_of(1.2 * kHome, 3, kMebibyte), kHome, 0), Verdict::kOpen);
  const double before = experiment.cost();
  ASSERT_TRUE(experiment.divide(in_proportion({0, 3, 1})));
  EXPECT_GT(experiment.cost(), before) << "the plan changes once more";
  EXPECT_EQ(experiment.look_at(window_of(0.9 * kHome, 4, kMebibyte), kHome, 0), Verdict::kWon);
}

TEST(Experiment, TriesFewDivisions) {
  Experiment experiment = experiment_with(0b110);
  int divisions = 0;
  while (divisions < 100 && experiment.divide(in_proportion({0, 3, 1}))) ++divisions;
  EXPECT_GE(divisions, 2);
  EXPECT_LE(divisions, 8);
}

TEST(Experiment, CostsSomethingBeforeItIsMeasured) {
  EXPECT_GT(experiment_with(0b010).cost(), 0) << "the plan has changed";
}

// ---- One other way -----------------------------------------------------------------------------

// Lanes take different times with the other algorithm.
struct Job {
  std::vector<SimulatedLane> usual;
  std::vector<SimulatedLane> other;
  SimulatedNoise noise{0.02, false, 1};
  std::unique_ptr<LoadBalancer> balancer;
  Timer timer;
  uint64_t ordinal = 0;
  bool overlap = false;   // operations overlap and give no times
  bool is_named = false;  // the program names algorithms, so no other one may be tried
  int by_other = 0;       // operations by the other algorithm
  int on_second = 0;      // operations that use the second of several lanes
  int slow_at_first = 0;  // so many first operations by the other algorithm take the usual time
  double slowly = 1;      // a factor on that time
  double slowed = 1;      // a factor on the time of all operations
  int since_change = 0;   // operations since the algorithm changed
  bool was_other = false;
  double time = 0;  // nanoseconds of all operations

  Job(std::vector<SimulatedLane> by_usual, std::vector<SimulatedLane> by_other_one)
      : usual(std::move(by_usual)),
        other(std::move(by_other_one)),
        timer(1, static_cast<int>(usual.size())) {
    std::vector<std::string> names;
    for (size_t lane = 0; lane < usual.size(); ++lane)
      names.push_back("eth" + std::to_string(lane));
    balancer = std::make_unique<LoadBalancer>(names, policy());
  }

  std::unique_ptr<Policy> policy() const {
    const int lanes = static_cast<int>(usual.size());
    return std::make_unique<ModelPolicy>(lanes, 0, nullptr, [this](SizeClass it) {
      const bool is_tried = !is_named && (it == kTriedClass || it == kShortClass);
      return is_tried ? std::optional(kOther) : std::nullopt;
    });
  }
  const TableEntry& entry(uint64_t bytes = kTriedBytes) const {
    return balancer->table().entries.at(size_class_of(bytes));
  }

  void run(int operations, uint64_t bytes = kTriedBytes) {
    for (int i = 0; i < operations; ++i) {
      (void)balancer->open(bytes);
      LaneSimulator network;
      const bool is_other = entry(bytes).algorithm == kOther;
      since_change = is_other == was_other ? since_change + 1 : 0;
      was_other = is_other;
      const bool is_first = is_other && since_change < slow_at_first;
      network.lanes = is_other && !is_first ? other : usual;
      by_other += is_other ? 1 : 0;
      const Allocation& by = entry(bytes).allocation;
      on_second += by.size() > 1 && by[1] > 0 ? 1 : 0;
      const int others = std::popcount(lanes_of(by)) - 1;
      Reading reading{{0, ++ordinal}, bytes, entry(bytes).number, {}};
      for (size_t lane = 0; lane < by.size(); ++lane) {
        const double part = part_of(static_cast<double>(bytes), by[lane]);
        const double took = network.lane_time(lane, part, others) * noise.next_lane() * slowed *
                            (is_first ? slowly : 1);
        reading.lanes.push_back(by[lane] == 0 ? 0 : std::llround(took));
      }
      time += static_cast<double>(*std::max_element(reading.lanes.begin(), reading.lanes.end()));
      if (overlap) reading.lanes.assign(by.size(), 0);
      const SizeClass size_class = size_class_of(bytes);
      timer.set_operations(size_class, balancer->window_operations(size_class));
      const auto window = timer.add(0, reading);
      ASSERT_TRUE(window.ok()) << window.status();
      if (*window) (void)balancer->on_window(**window);
    }
  }
};

// 4 ranks on a rail of 1 Gbit/s: each round takes 12 us, and a rank sends 2 or 1.5 messages' bytes.
SimulatedLane of(int rounds, double messages, double nanos_a_byte = 8) {
  return {.start = 12'000.0 * rounds, .slope = messages * nanos_a_byte, .start_beside = 5'000};
}
const SimulatedLane kFewRounds = of(2, 2);
const SimulatedLane kFewBytes = of(4, 1.5);

TEST(Experiment, TheBetterOneIsFoundAndStays) {
  Job job({kFewRounds}, {kFewBytes});
  job.run(100);
  EXPECT_EQ(job.entry().algorithm, kOther) << job.balancer->table().history(kTriedClass);
  job.by_other = 0;
  job.run(10'000);
  EXPECT_GE(job.by_other, 9'800);
  EXPECT_EQ(job.entry().algorithm, kOther);
}

// Operations that overlap give no times.
TEST(Experiment, EndsWhereOperationsBeginToOverlap) {
  Job job({kFewBytes}, {of(8, 4)});
  job.run(1);
  for (int i = 0; i < 1000 && job.entry().algorithm != kOther; ++i) job.run(1);
  ASSERT_EQ(job.entry().algorithm, kOther);
  job.overlap = true;
  job.run(Timer::kSilent);
  EXPECT_EQ(job.entry().algorithm, Algorithm::kAuto);
  EXPECT_EQ(job.entry().history.back().cause, Cause::kReturn);
  job.by_other = 0;
  job.run(1'000);
  EXPECT_EQ(job.by_other, 0);
}

// Phases of operations that can be measured alternate with phases of operations that overlap.
TEST(Experiment, OneThatOverlappingOperationsEndedRestsToo) {
  Job job({kFewBytes}, {of(8, 4)});
  for (int phase = 0; phase < 100; ++phase) {
    job.overlap = false;
    job.run(10);
    job.overlap = true;
    job.run(80);
  }
  EXPECT_GT(job.by_other, 0);
  EXPECT_LE(job.by_other, 1'000) << job.balancer->table().history(kTriedClass);
}

TEST(Experiment, EndsWhenTheProgramNamesAlgorithms) {
  Job job({kFewRounds}, {kFewBytes});
  job.run(1);
  for (int i = 0; i < 1000 && job.entry().algorithm != kOther; ++i) job.run(1);
  ASSERT_EQ(job.entry().algorithm, kOther);
  job.is_named = true;
  job.run(1'000);
  EXPECT_EQ(job.entry().algorithm, Algorithm::kAuto) << job.balancer->table().history(kTriedClass);
}

// The policy knows about the other lanes only what the first algorithm has shown.
TEST(Experiment, TriesSlowLanesOnceMoreWhenTheFastOneSlowsDown) {
  for (const uint64_t bytes : {kShortBytes, kTriedBytes}) {
    SCOPED_TRACE(bytes);
    const SizeClass size_class = size_class_of(bytes);
    Job job({of(2, 2), of(30, 2, 80)}, {of(1, 1.5), of(30, 1.5, 80)});
    job.run(3'000, bytes);
    ASSERT_EQ(job.entry(bytes).algorithm, kOther) << job.balancer->table().history(size_class);
    job.other[0].start += 0.6 * static_cast<double>(bytes) * job.other[0].slope;
    job.on_second = 0;
    job.run(100, bytes);
    EXPECT_LE(job.on_second, 20) << job.balancer->table().history(size_class);
  }
}

// The first times still show what the previous algorithm has left in the token buckets.
TEST(Experiment, TheFirstOperationsDoNotDecide) {
  Job job({kFewRounds}, {kFewBytes});
  job.slow_at_first = 5;
  job.run(200);
  EXPECT_EQ(job.entry().algorithm, kOther) << job.balancer->table().history(kTriedClass);
}

// An experiment that begins in the spell and ends after it may favour the worse one, but the next
// experiment corrects that.
TEST(Experiment, RunsByTheBetterOneSoonAfterASlowSpell) {
  for (const int before : {2'000, 3'000, 4'000, 5'000, 6'000, 7'000}) {
    SCOPED_TRACE(before);
    Job job({kFewRounds}, {kFewBytes});
    job.run(before);
    ASSERT_EQ(job.entry().algorithm, kOther);
    job.slowed = 1.6;
    job.run(18);
    job.slowed = 1;
    job.by_other = 0;
    job.run(400);
    EXPECT_EQ(job.entry().algorithm, kOther) << job.balancer->table().history(kTriedClass);
    EXPECT_GE(job.by_other, 190) << job.balancer->table().history(kTriedClass);
  }
}

TEST(Experiment, TheOtherAlgorithmIsMeasuredOnceWithoutABudget) {
  Job job({kFewBytes}, {of(8, 3)});
  job.run(40);
  EXPECT_GT(job.by_other, 0) << "a hundredth of so few operations affords nothing";
  EXPECT_LE(job.by_other, 8) << "it takes twice as long, which its first operations show";
}

TEST(Experiment, OneLaneAloneByTheOtherAlgorithmIsFoundToo) {
  Job job({of(2, 2, 16), of(2, 2, 16)}, {{12'000, 8, 400'000}, {12'000, 9, 400'000}});
  job.run(3'000);
  EXPECT_EQ(job.entry().algorithm, kOther) << job.balancer->table().history(kTriedClass);
  EXPECT_EQ(job.balancer->learned().entries.at(kTriedClass).allocation, all_on(0, 2));
}

TEST(Experiment, TheWorseOneCostsLittle) {
  Job job({kFewBytes, kFewBytes}, {of(8, 3), of(8, 3)});
  job.run(20'000);
  EXPECT_EQ(job.entry().algorithm, Algorithm::kAuto);
  EXPECT_GT(job.by_other, 0) << "it was never tried";
  EXPECT_LE(job.by_other, 80) << "it takes twice as long: far less than a hundredth of the time";
}

TEST(Experiment, ThoseThatAreAlikeDoNotTakeTurns) {
  Job job({kFewBytes}, {kFewBytes});
  job.run(20'000);
  EXPECT_GT(job.by_other, 0);
  EXPECT_LE(job.by_other, 1'500) << job.balancer->table().history(kTriedClass);
}

// The sizes alternate in phases between the ends of a class. Times differ only by size.
TEST(Experiment, SizesAreNotTakenForAlgorithms) {
  Job job({kFewBytes}, {of(4, 1.8)});
  for (int phase = 0; phase < 400; ++phase) job.run(37, phase % 2 == 0 ? 17 << 10 : 31 << 10);
  EXPECT_EQ(job.entry().algorithm, Algorithm::kAuto) << job.balancer->table().history(kTriedClass);
  EXPECT_GT(job.by_other, 0);
  EXPECT_LE(job.by_other, 400);
}

TEST(Experiment, TwoLanesAreDividedAnewByTheOtherOne) {
  Job job({of(2, 3), of(2, 3)}, {kFewBytes, of(4, 1.5, 11)});
  job.run(3'000);
  EXPECT_EQ(job.entry().algorithm, kOther) << job.balancer->table().history(kTriedClass);
  EXPECT_EQ(lanes_of(job.entry().allocation), 0b11);
  EXPECT_GT(job.entry().allocation[0], job.entry().allocation[1] + (1 << 16));
}

// ---- Several other ways ------------------------------------------------------------------------

constexpr LaneSet kStripes = 0b100;

// Two rails and stripes over both. Each algorithm has a time for operations in two parts and a time
// for operations by turns.
struct Roads {
  struct Times {
    double usual = 100'000, other = 100'000, usual_by_turns = 100'000, other_by_turns = 100'000;
  };
  Times times;
  double by_turns_at_first = 1;  // a factor on the times by turns during the first `moment`
  int moment = 8;                // operations
  SimulatedNoise noise{0.02, false, 1};
  LoadBalancer balancer;
  Timer timer{1, 3};
  uint64_t ordinal = 0;
  int since_change = 0;
  std::map<std::string, int> taken;
  double tried = 0;  // nanoseconds that trials took beyond `usual`, without noise

  explicit Roads(Times those) : times(those), balancer({"eth0", "eth1", "stripes"}, model()) {}

  static std::unique_ptr<Policy> model() {
    return std::make_unique<ModelPolicy>(3, kStripes, nullptr, [](SizeClass it) {
      return it == kTriedClass ? std::optional(kOther) : std::nullopt;
    });
  }
  const TableEntry& entry() const { return balancer.table().entries.at(kTriedClass); }
  static std::string road_of(const TableEntry& entry) {
    const bool is_by_turns = lanes_of(entry.allocation) == kStripes;
    return std::string(entry.algorithm == kOther ? "other" : "usual") +
           (is_by_turns ? " by turns" : "");
  }
  std::string road() const { return road_of(entry()); }
  // The road without a trial that is under way.
  std::string home() const { return road_of(balancer.learned().entries.at(kTriedClass)); }

  void run(int operations) {
    for (int i = 0; i < operations; ++i) {
      (void)balancer.open(kTriedBytes);
      const bool is_other = entry().algorithm == kOther;
      ++taken[road()];
      Reading reading{{0, ++ordinal}, kTriedBytes, entry().number, {}};
      const double divided = is_other ? times.other : times.usual;
      double turns = is_other ? times.other_by_turns : times.usual_by_turns;
      if (since_change++ < moment) turns *= by_turns_at_first;
      double longest = 0;
      for (size_t lane = 0; lane < 3; ++lane) {
        const double part = part_of(2, entry().allocation[lane]);
        const double took = (lane == 2 ? turns * part / 2 : divided * (0.5 + part / 2));
        if (part > 0) longest = std::max(longest, took);
        reading.lanes.push_back(part == 0 ? 0 : std::llround(took * noise.next_lane()));
      }
      const bool is_tried = entry().history.back().cause == Cause::kProbe;
      if (is_tried) tried += longest - times.usual;
      timer.set_operations(kTriedClass, balancer.window_operations(kTriedClass));
      const auto window = timer.add(0, reading);
      ASSERT_TRUE(window.ok()) << window.status();
      const std::string before = road();
      if (*window) (void)balancer.on_window(**window);
      if (road() != before) since_change = 0;
    }
  }
};

TEST(Experiment, TheBestOfSeveralWaysIsFoundAndStays) {
  for (const char* best : {"other", "usual by turns", "other by turns"}) {
    Roads::Times times{.other = 115'000, .usual_by_turns = 120'000, .other_by_turns = 130'000};
    const std::string name = best;
    (name == "other"            ? times.other
     : name == "usual by turns" ? times.usual_by_turns
                                : times.other_by_turns) = 70'000;
    Roads roads(times);
    roads.run(3'000);
    EXPECT_EQ(roads.home(), best) << roads.balancer.table().history(kTriedClass);
    roads.taken.clear();
    roads.run(20'000);
    EXPECT_GE(roads.taken[best], 19'500) << roads.balancer.table().history(kTriedClass);
  }
}

TEST(Experiment, WhatTheWinnerTookIsKept) {
  Roads roads({.other_by_turns = 60'000});
  do {
    roads.run(1);
    ASSERT_LT(roads.entry().windows, 1'000u);
  } while (roads.entry().history.back().cause != Cause::kWay);
  EXPECT_EQ(roads.entry().ran_by, roads.entry().allocation);
}

TEST(Experiment, WaysThatAreNoBetterAreSeldomTried) {
  Roads roads({.other = 200'000, .usual_by_turns = 150'000, .other_by_turns = 102'000});
  roads.run(1'000);
  roads.tried = 0;
  roads.run(20'000);
  EXPECT_EQ(roads.taken.size(), 4u) << "each was tried";
  EXPECT_GT(roads.tried, 0);
  EXPECT_LE(roads.tried / 20'000, 0.01 * roads.times.usual) << "probes and trials cost too much";
  EXPECT_GE(roads.taken["usual"], 19'900) << roads.balancer.table().history(kTriedClass);
}

TEST(Experiment, TakesEitherOfTwoEquallyGoodWays) {
  Roads roads({.other = 200'000, .usual_by_turns = 150'000, .other_by_turns = 99'000});
  roads.run(20'000);
  EXPECT_GE(roads.taken["usual"] + roads.taken["other by turns"], 19'500)
      << roads.balancer.table().history(kTriedClass);
}

// A token bucket has filled up while messages went another way.
TEST(Experiment, AWayThatIsGoodForAMomentIsNotTaken) {
  for (const int moment : {8, 60}) {
    Roads roads({.usual_by_turns = 200'000, .other_by_turns = 200'000});
    roads.by_turns_at_first = 0.3;
    roads.moment = moment;
    roads.run(20'000);
    EXPECT_GE(roads.taken["usual"] + roads.taken["other"], moment == 8 ? 19'000 : 17'500)
        << roads.balancer.table().history(kTriedClass);
  }
}

TEST(Experiment, AWayThatHasWonByWhatLastsForLongIsTriedLater) {
  Roads roads({.other = 200'000, .usual_by_turns = 200'000, .other_by_turns = 200'000});
  roads.by_turns_at_first = 0.425;  // of 200 us: 85 us
  roads.moment = 150;
  roads.run(20'000);
  EXPECT_GE(roads.taken["usual"], 14'000) << roads.balancer.table().history(kTriedClass);
}

// Neither by what made it slow nor by what it seemed before.
TEST(Experiment, OneThatHasWonWithoutBeingBetterIsLeft) {
  Roads roads({.other = 200'000, .usual_by_turns = 85'000, .other_by_turns = 200'000});
  roads.run(1'000);
  ASSERT_EQ(roads.home(), "usual by turns");
  roads.times.usual_by_turns = 115'000;
  roads.taken.clear();
  roads.run(2'000);
  EXPECT_GE(roads.taken["usual"], 1'000) << roads.balancer.table().history(kTriedClass);
}

TEST(Experiment, AWayThatHasBecomeSlowIsLeftSoon) {
  Roads roads({.usual_by_turns = 60'000});
  roads.run(5'000);
  ASSERT_EQ(roads.home(), "usual by turns");
  roads.times.usual_by_turns = roads.times.other_by_turns = 200'000;
  roads.run(300);
  EXPECT_EQ(roads.road().find("by turns"), std::string::npos)
      << roads.balancer.table().history(kTriedClass);
}

TEST(Experiment, TurnsAreSavedAndGoOn) {
  Roads roads({.other_by_turns = 60'000});
  roads.run(3'000);
  ASSERT_EQ(roads.home(), "other by turns");
  const auto saved = parse_table(format_table(roads.balancer.learned()), "t");
  ASSERT_TRUE(saved.ok()) << saved.status();
  Roads next(roads.times);
  ASSERT_TRUE(next.balancer.resume(*saved).ok());
  next.run(1'000);
  EXPECT_GE(next.taken["other by turns"], 900) << next.balancer.table().history(kTriedClass);
  // A better road can still be found from there.
  next.times = {.usual = 60'000};
  next.run(3'000);
  EXPECT_EQ(next.home(), "usual") << next.balancer.table().history(kTriedClass);
}

TEST(Experiment, AProbeThatIsSavedIsNoWay) {
  Roads roads({});
  roads.run(300);
  DataLengthTable table = roads.balancer.learned();
  TableEntry& entry = table.entries.at(kTriedClass);
  const Allocation divided = in_proportion({0.6, 0.4, 0});
  entry.ran_by = divided;
  entry.state = ClassState::kConverged;
  entry.change(all_on(2, 3), Cause::kProbe);
  Roads next(roads.times);
  ASSERT_TRUE(next.balancer.resume(table).ok());
  ASSERT_EQ(next.entry().allocation, divided);
  EXPECT_FALSE(next.entry().is_probed());
  next.run(100);
  EXPECT_NE(next.balancer.learned().entries.at(kTriedClass).allocation, divided)
      << "no policy looked at it";
}

TEST(Experiment, LanesThatAreLostLeaveTheWay) {
  Roads roads({.other_by_turns = 60'000});
  roads.run(3'000);
  ASSERT_EQ(roads.home(), "other by turns");
  (void)roads.balancer.set_live(0b110);
  roads.run(1'000);
  EXPECT_EQ(roads.road(), "other by turns") << "stripes do without eth0";
  const auto changes = roads.balancer.set_live(0b010);
  ASSERT_EQ(changes.size(), 1u);
  EXPECT_EQ(changes[0].allocation, all_on(1, 3));
}

// ------------------------------------------------------------------------------------------------

TEST(Experiment, FollowsANetworkThatChanges) {
  Job job({kFewRounds}, {kFewBytes});
  job.run(2'000);
  ASSERT_EQ(job.entry().algorithm, kOther);
  job.usual = {of(2, 2, 0.5)};
  job.other = {of(4, 1.5, 0.5)};
  job.run(6'000);
  EXPECT_EQ(job.entry().algorithm, Algorithm::kAuto) << job.balancer->table().history(kTriedClass);
}

TEST(Experiment, TriesNothingInOtherClasses) {
  Job job({kFewRounds}, {kFewBytes});
  job.run(1'000, kTriedBytes / 8);
  EXPECT_EQ(job.by_other, 0);
  EXPECT_EQ(job.entry(kTriedBytes / 8).changes, 1u);
}

TEST(Experiment, LanesThatAreLostEndIt) {
  Job job({kFewRounds, kFewRounds}, {kFewBytes, kFewBytes});
  for (int i = 0; i < 3'000 && job.by_other == 0; ++i) job.run(1);
  ASSERT_EQ(job.entry().algorithm, kOther);
  const auto changes = job.balancer->set_live(0b10);
  ASSERT_EQ(changes.size(), 1u);
  EXPECT_EQ(changes[0].algorithm, Algorithm::kAuto) << "it had not won yet";
  EXPECT_EQ(changes[0].allocation, all_on(1, 2));
  job.run(2'000);
  EXPECT_EQ(job.entry().allocation, all_on(1, 2));
  EXPECT_EQ(job.entry().algorithm, kOther) << "it is tried again";
}

TEST(Experiment, IsSavedAndGoesOn) {
  Job job({kFewRounds}, {kFewBytes});
  job.run(100);
  ASSERT_EQ(job.entry().algorithm, kOther);
  const std::string text = format_table(job.balancer->table());
  EXPECT_NE(text.find("\nalgorithm halving-doubling\n"), std::string::npos) << text;
  const auto saved = parse_table(text, "t");
  ASSERT_TRUE(saved.ok()) << saved.status();
  Job next({kFewRounds}, {kFewBytes});
  const auto changes = next.balancer->resume(*saved);
  ASSERT_TRUE(changes.ok()) << changes.status();
  ASSERT_EQ(changes->size(), 1u);
  EXPECT_EQ(changes->front().algorithm, kOther);
  next.run(10);
  EXPECT_EQ(next.by_other, 10);

  // The class starts again if its algorithm may not be tried.
  LoadBalancer without({"eth0"}, std::make_unique<FixedPolicy>(1, 0, 0));
  ASSERT_TRUE(without.resume(*saved).ok());
  EXPECT_TRUE(without.table().entries.empty());
}

// The table has the algorithm and the times from before the trial.
TEST(Experiment, ATrialThatIsUnderWayIsNotSaved) {
  Job job({kFewRounds}, {kFewBytes});
  while (job.by_other < 3) job.run(1);
  ASSERT_EQ(job.entry().algorithm, kOther);
  const DataLengthTable glance = job.balancer->learned();
  job.run(5);
  ASSERT_GT(job.entry().windows, glance.entries.at(kTriedClass).windows) << "the trial goes on";
  ASSERT_EQ(job.entry().algorithm, kOther);
  for (const DataLengthTable& table : {glance, job.balancer->learned()}) {
    const TableEntry& saved = table.entries.at(kTriedClass);
    EXPECT_EQ(saved.algorithm, Algorithm::kAuto);
    EXPECT_NEAR(static_cast<double>(saved.times[0]), 286'000, 15'000);
    EXPECT_EQ(saved.history.back().cause, Cause::kStart);
  }
}

TEST(Experiment, LanesThatAreLostInATrialOfTheUsualOneLeaveTheOther) {
  Job job({of(2, 3), of(2, 3)}, {kFewBytes, kFewBytes});
  job.run(600);
  ASSERT_EQ(job.entry().algorithm, kOther);
  for (int i = 0; i < 10'000 && job.entry().algorithm == kOther; ++i) job.run(1);
  ASSERT_EQ(job.entry().algorithm, Algorithm::kAuto);
  const auto changes = job.balancer->set_live(0b01);
  ASSERT_EQ(changes.size(), 1u);
  EXPECT_EQ(changes[0].algorithm, kOther);
  EXPECT_EQ(changes[0].allocation, all_on(0, 2));
}

}  // namespace
}  // namespace nezha
