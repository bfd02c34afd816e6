// SPDX-License-Identifier: Apache-2.0
// What tests of planners share: ranks that start operations as contexts do, over sockets on
// loopback. Each is an endpoint of this process.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "context/planner.h"
#include "context/rails.h"
#include "gtest/gtest.h"
#include "tests/unit/context/fake_engine.h"

namespace nezha::testing {

// The records that the ranks have published.
struct PublishedRecords final : Directory {
  absl::Status publish(int, const Record&) override { return absl::OkStatus(); }
  absl::Status confirm(int, const Record&) override { return absl::OkStatus(); }
  void refuse(int, absl::string_view) override {}
  absl::StatusOr<Record> read(int rank, Nanos, const std::function<absl::Status()>&) override {
    Record record = records.at(static_cast<size_t>(rank));
    if (!unreachable.empty()) record.devices.at(unreachable) = "127.0.0.1:1";
    return record;
  }

  std::vector<Record> records;
  std::string unreachable;  // a rail that leads nowhere; "": there is none
};

class PlannedRank final : public PlannerOwner, RunningOperationOwner, JobListener {
 public:
  static constexpr UniqueId kContext{11, 22};

  // `rails` are the names of its rails.
  PlannedRank(std::shared_ptr<Directory> directory, ContextOptions options,
              const std::vector<std::string>& rails)
      : setup(*Endpoint::create(), std::move(directory), std::move(options), kContext) {
    std::vector<std::string> uris;
    for (const std::string& rail : rails) uris.push_back("tcp:lo?rail=" + rail);
    setup.rails = *open_devices(*setup.endpoint, uris, "");
    const Progress::Guard guard(setup.progress());
    roster.form();
    EXPECT_TRUE(setup.endpoint->join(kContext, this).ok());
  }
  ~PlannedRank() { leave(); }

  void leave() {
    const Progress::Guard guard(setup.progress());
    on_failed(absl::CancelledError("the context is about to end"));
    planner.close();
    setup.endpoint->leave(kContext, this);
    setup.progress().run_deferred();
  }
  void open() {
    const Progress::Guard guard(setup.progress());
    planner.open();
  }

  // A request for an operation on `vector`.
  Request request(size_t elements, Collective collective = Collective::kAllreduce) {
    Request request;
    if (vector.size() < elements) vector.resize(elements);
    Operation& op = request.operation;
    op.collective = collective;
    op.input = op.output = reinterpret_cast<std::byte*>(vector.data());
    op.elements = elements;
    op.element_size = sizeof(uint32_t);
    op.type = DataType::kUint32;
    op.tag = 3;
    request.plan.schedule = ScheduleKind::kRecursiveDoubling;
    request.is_by_size = true;
    request.deadline = now() + 600 * kSecond;
    return request;
  }
  // Under the lock: begins an operation whose tasks do not start yet.
  std::shared_ptr<RunningOperation> begin(Request request) {
    RunningOperationOwner& owner = *this;
    auto operation = std::make_shared<RunningOperation>(owner, setup, std::move(request));
    running.push_back(operation);
    operation->begin(++ordinal);
    return operation;
  }
  std::shared_ptr<RunningOperation> start(Request request) {
    const Progress::Guard guard(setup.progress());
    auto operation = begin(std::move(request));
    launch(operation);
    setup.progress().run_deferred();
    return operation;
  }
  bool has_started(const RunningOperation& operation) const {
    const Progress::Guard guard(setup.progress());
    return operation.has_started();
  }
  // Runs it without any other rank.
  void run_alone(Request request) {
    engine.begins_as = Task::State::kDone;
    replaces_engines = true;
    EXPECT_TRUE(start(std::move(request))->test());
  }
  void finish_on_engine() {
    const Progress::Guard guard(setup.progress());
    for (FakeTask* task : std::vector(engine.tasks)) task->finish(Task::State::kDone);
    setup.progress().run_deferred();
  }
  void set_up_if_wanted() {
    {
      const Progress::Guard guard(setup.progress());
      if (set_up == wanted) return;
      ++set_up;
    }
    planner.set_up();
  }
  BalanceStats balance() const {
    const Progress::Guard guard(setup.progress());
    return planner.balance();
  }

  // How an operation was carried out.
  struct Way {
    uint32_t plan = 0;
    AssignedSlices slices;
    bool has_gate = false;
    bool has_scratch = false;
  };

  FakeEngine engine;  // which can be lost, if `engines` has it
  std::vector<uint32_t> vector;
  nezha::Setup setup;
  Roster roster{setup, [] { return absl::OkStatus(); }};
  Engines engines{setup};
  HostsEngine hosts;
  Planner::Operations running, held;
  bool replaces_engines = false;  // `engine` carries out everything, whatever the planner says
  uint64_t ordinal = 0;
  std::map<uint64_t, Way> ways;  // of the operations that have started
  std::vector<absl::Status> failures;
  int wanted = 0;  // how often the set-up was asked for
  int set_up = 0;
  Planner planner{setup, roster, engines, hosts, running, *this};

 private:
  void launch(const std::shared_ptr<RunningOperation>& operation) {
    auto assignment = planner.assign(*operation);
    if (!assignment) return held.push_back(operation);
    planner.note_disturbance(*operation);
    ways[operation->id().ordinal] = {assignment->plan, assignment->slices,
                                     assignment->gate == &hosts, bool{assignment->scratch}};
    for (AssignedSlice& slice : assignment->slices) {
      if (replaces_engines) slice.engine = &engine;
    }
    operation->start(roster.group(), *std::move(assignment));
  }

  // PlannerOwner
  bool has_started(const OperationId& operation) const override {
    return ways.contains(operation.ordinal);
  }
  void on_released() override {
    for (const auto& operation : std::exchange(held, {})) launch(operation);
  }
  void on_set_up_wanted() override { ++wanted; }
  // PlannerOwner, RunningOperationOwner and JobListener
  void on_failed(const absl::Status& why) override {
    failures.push_back(why);
    planner.stop();
    held.clear();
    for (const auto& operation : std::vector(running)) operation->fail(why);
  }
  // RunningOperationOwner
  void on_operation_slow(const RunningOperation&) override {}
  void on_operation_overdue(const RunningOperation&) override {}
  bool is_cut_off() const override { return false; }
  std::string absent(const RunningOperation&) const override { return ""; }
  std::vector<int> missing(const RunningOperation&) const override { return {}; }
  void on_operation_over(RunningOperation& operation) override {
    planner.measure(operation);
    std::erase_if(running, [&](const auto& other) { return other.get() == &operation; });
  }
  void on_engine_lost(int lane) override { planner.on_engine_lost(lane); }
  std::string why_frozen() const override { return planner.why_frozen(); }
  // JobListener
  void on_abort(const wire::Abort&) override {}
  void on_roll_call(const wire::RollCall&) override {}
};

// Ranks that run operations together.
class PlannerFixture : public ::testing::Test {
 protected:
  static constexpr size_t kElements = 16 << 10;

  static ContextOptions options(Plan plan, BalancePolicy policy, int size = 2) {
    ContextOptions options;
    options.rank = 0;
    options.size = size;
    options.plan = plan;
    options.policy = policy;
    return options;
  }
  static ContextOptions usual() { return options(Plan::kAuto, BalancePolicy::kModel); }
  // Opens rank 0. There are no other ranks.
  PlannedRank& open_one(const ContextOptions& options,
                        const std::vector<std::string>& rails = {"a", "b"}) {
    ranks_.clear();
    ranks_.push_back(std::make_unique<PlannedRank>(records_, options, rails));
    ranks_[0]->open();
    return *ranks_[0];
  }
  // Opens all ranks. Each numbers its two rails in its own way.
  void open_all(const ContextOptions& options, bool has_switch = false) {
    ranks_.clear();
    records_->records.clear();
    for (int rank = 0; rank < options.size; ++rank) {
      ContextOptions own = options;
      own.rank = rank;
      const bool is_odd = rank % 2 == 1;
      ranks_.push_back(std::make_unique<PlannedRank>(
          records_, own, std::vector<std::string>{is_odd ? "b" : "a", is_odd ? "a" : "b"}));
      records_->records.push_back(ranks_.back()->roster.own_record());
    }
    EXPECT_TRUE(ranks_[0]->planner.load_table().ok());
    for (int rank = 0; rank < options.size; ++rank) {
      PlannedRank& it = *ranks_[static_cast<size_t>(rank)];
      if (has_switch) it.engines.add("switch", it.engine);
      it.setup.is_switch_alone = has_switch;
      it.open();
      for (int peer = 0; peer < options.size; ++peer) {
        if (peer == rank) continue;
        EXPECT_TRUE(it.roster.resolve(peer, now() + 60 * kSecond).ok());
      }
    }
  }
  using Operations = Planner::Operations;
  using MakeRequest = std::function<Request(PlannedRank&)>;

  // Starts an operation on all ranks.
  Operations start(const MakeRequest& make) {
    Operations operations;
    for (size_t i = 0; i < ranks_.size(); ++i) {
      ranks_[i]->vector.assign(kElements, static_cast<uint32_t>(i) + 1);
      operations.push_back(ranks_[i]->start(make(*ranks_[i])));
    }
    for (const auto& rank : ranks_) rank->setup.progress().nobody_waits();
    return operations;
  }
  // Waits until the operation is over on all ranks. The switch, if it works, carries out its part
  // once all ranks have started theirs.
  void finish(const Operations& operations, bool works = true) {
    const Nanos deadline = now() + 60 * kSecond;
    for (bool are_over = false; !are_over;) {
      ASSERT_LT(now(), deadline);
      are_over = true;
      bool have_started = true;
      for (size_t i = 0; i < ranks_.size(); ++i) {
        are_over &= operations[i]->wait(now() + kMillisecond);
        have_started &= ranks_[i]->has_started(*operations[i]);
      }
      if (!works || !have_started) continue;
      for (const auto& rank : ranks_) rank->finish_on_engine();
    }
    for (const auto& operation : operations) EXPECT_NO_THROW(operation->raise_if_failed());
    for (const auto& rank : ranks_) rank->set_up_if_wanted();
  }
  void run(const MakeRequest& make = [](PlannedRank& rank) { return rank.request(kElements); }) {
    finish(start(make));
  }
  void run_until(const std::function<bool()>& holds) {
    const Nanos deadline = now() + 60 * kSecond;
    while (!holds() && !HasFailure()) {
      ASSERT_LT(now(), deadline);
      run();
    }
  }
  // How the rank has carried out its latest operation.
  static const PlannedRank::Way& latest(const PlannedRank& rank) {
    return rank.ways.at(rank.ordinal);
  }
  static bool is_on_switch(const PlannedRank& rank) {
    return !rank.ways.empty() && latest(rank).slices[0].engine == &rank.engine;
  }
  bool are_on_switch() const {
    return std::all_of(ranks_.begin(), ranks_.end(),
                       [](const auto& rank) { return is_on_switch(*rank); });
  }
  static std::set<std::string> names(const PlannedRank& rank, RailMask rails) {
    std::set<std::string> names;
    for (const Rail rail : rank.setup.rails) {
      if ((rails & rail_bit(rail)) != 0) names.insert(rank.setup.endpoint->device(rail)->name());
    }
    return names;
  }
  void expect_sums() const {
    const auto sum = static_cast<uint32_t>(ranks_.size() * (ranks_.size() + 1) / 2);
    for (const auto& rank : ranks_) {
      const auto end = rank->vector.begin() + kElements;
      EXPECT_EQ(std::count(rank->vector.begin(), end, sum), std::ptrdiff_t{kElements});
    }
  }

  std::shared_ptr<PublishedRecords> records_ = std::make_shared<PublishedRecords>();
  std::vector<std::unique_ptr<PlannedRank>> ranks_;
};

}  // namespace nezha::testing
