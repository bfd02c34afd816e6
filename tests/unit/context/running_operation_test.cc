// SPDX-License-Identifier: Apache-2.0
#include "context/running_operation.h"

#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "context/exchange_tasks.h"
#include "gtest/gtest.h"
#include "nezha/errors.h"
#include "tests/unit/context/operation_fixture.h"

namespace nezha {
namespace {

using testing::FakeEngine;
using TaskState = Task::State;

class RunningOperationTest : public testing::OperationFixture {
 protected:
  static constexpr Nanos kForEver = std::numeric_limits<Nanos>::max();
};

TEST_F(RunningOperationTest, IsOverOnceAllItsPartsAre) {
  const auto operation = begin(allreduce());
  EXPECT_FALSE(operation->has_started());
  start(*operation, {&hosts_, &switch_});
  EXPECT_TRUE(operation->has_started());
  ASSERT_EQ(hosts_.tasks.size(), 1u);
  EXPECT_EQ(hosts_.tasks[0]->plan.version, 5u);
  switch_.tasks[0]->finish(TaskState::kDone);
  EXPECT_FALSE(operation->over());
  hosts_.tasks[0]->finish(TaskState::kDone);
  EXPECT_TRUE(operation->over());
  EXPECT_EQ(owner_.over, 1);
  setup_.progress().run_deferred();
  EXPECT_TRUE(hosts_.tasks.empty()) << "it keeps what it no longer needs";
  without_lock([&] {
    EXPECT_TRUE(operation->test());
    EXPECT_TRUE(operation->wait(0));
    EXPECT_NO_THROW(operation->raise_if_failed());
  });
}

TEST_F(RunningOperationTest, TasksMayBeDoneAtOnce) {
  hosts_.begins_as = TaskState::kDone;
  const auto operation = started({&hosts_, &hosts_, &hosts_});
  EXPECT_TRUE(operation->over());
  EXPECT_EQ(hosts_.started, 3);
  EXPECT_EQ(owner_.over, 1);
}

TEST_F(RunningOperationTest, TheResultGoesToAllPlacesThatTheCallerNamed) {
  std::vector<uint32_t> first(kElements), second(kElements);
  for (const bool has_output : {true, false}) {
    Request request = allreduce();
    if (!has_output) request.operation.output = nullptr;  // as in a broadcast at the root
    for (auto* copy : {&first, &second}) {
      request.copies.push_back(reinterpret_cast<std::byte*>(copy->data()));
    }
    const auto operation = begin(std::move(request));
    start(*operation, {&hosts_});
    vector_.assign(kElements, has_output ? 42 : 43);
    hosts_.tasks.back()->finish(TaskState::kDone);
    EXPECT_EQ(first, vector_);
    EXPECT_EQ(second, vector_);
  }
}

// ---- Failure -----------------------------------------------------------------------------------

TEST_F(RunningOperationTest, AnEngineThatCannotStartItFailsIt) {
  switch_.refusal = absl::UnavailableError("rank 1 has left");
  const auto operation = started({&hosts_, &switch_});
  EXPECT_TRUE(operation->over());
  EXPECT_EQ(hosts_.fenced, 1) << "a task of it still uses the caller's memory";
  EXPECT_EQ(error_of(*operation), "nezha: rank 0 of 2: rank 1 has left");
}

TEST_F(RunningOperationTest, ATaskThatFailsFailsItForThatReason) {
  const auto operation = started({&hosts_, &switch_});
  hosts_.tasks[0]->finish(TaskState::kFailed, absl::UnavailableError("rank 1 is gone"));
  EXPECT_TRUE(operation->over());
  EXPECT_EQ(switch_.fenced, 1);
  operation->fail(absl::InternalError("something else"));
  EXPECT_EQ(owner_.over, 1);
  EXPECT_EQ(error_of(*operation), "nezha: rank 0 of 2: rank 1 is gone");
}

TEST_F(RunningOperationTest, NothingMoreStartsOnceATaskHasFailed) {
  hosts_.begins_as = TaskState::kFailed;
  const auto operation = begin(allreduce());
  start(*operation, {&hosts_, &switch_}, &hosts_);
  EXPECT_TRUE(operation->over());
  EXPECT_EQ(hosts_.started + switch_.started, 1);
  EXPECT_EQ(owner_.failures.size(), 1u);
}

// ---- Its deadline ------------------------------------------------------------------------------

TEST_F(RunningOperationTest, AtItsDeadlineItFailsAndSaysWhatKeptIt) {
  const auto operation = begin(allreduce(20 * kMillisecond));
  operation->waits_for("rank 1 has not appeared", {1});
  start(*operation, {&hosts_, nullptr});
  EXPECT_TRUE(operation->awaited_ranks().empty());
  without_lock([&] { EXPECT_TRUE(operation->wait(kForEver)); });
  EXPECT_EQ(owner_.overdue, 1) << "nobody was asked why";
  EXPECT_EQ(error_of<TimeoutError>(*operation),
            "nezha: rank 0 of 2: allreduce (tag 3, 4096 bytes) was not complete after 20 ms; rank "
            "1 has not entered it; a task waits for rank 1; an engine is lost");
  try {
    operation->raise_if_failed();
  } catch (const TimeoutError& error) {
    EXPECT_EQ(error.ranks(), std::vector<int>{1});
  }
}

TEST_F(RunningOperationTest, BeforeItsTasksStartItSaysWhatItWaitsFor) {
  const auto operation = begin(allreduce(20 * kMillisecond));
  operation->waits_for("rank 1 has not appeared", {1});
  EXPECT_EQ(operation->awaited_ranks(), std::vector<int>{1});
  without_lock([&] { EXPECT_TRUE(operation->wait(kForEver)); });
  const std::string error = error_of<TimeoutError>(*operation);
  EXPECT_NE(error.find("; rank 1 has not appeared"), std::string::npos) << error;
}

TEST_F(RunningOperationTest, ASlowCollectiveIsToldOfAndASlowExchangeIsNot) {
  Loopback loopback;
  Request request;
  request.exchange = std::make_shared<Exchange>(
      Exchange::Terms{.is_send = false, .peers = {1}, .tag = 7}, loopback);
  request.deadline = now() + 700 * kMillisecond;
  const auto exchange = begin(std::move(request));
  const auto collective = started({&hosts_});
  without_lock([&] { EXPECT_TRUE(exchange->wait(kForEver)); });
  EXPECT_FALSE(owner_.slow.empty());
  for (const auto* operation : owner_.slow) EXPECT_EQ(operation, collective.get());
}

// ---- What is measured --------------------------------------------------------------------------

TEST_F(RunningOperationTest, LanesThatCarriedSomethingHaveTimes) {
  Request request = allreduce();
  request.operation.elements = 16;  // a single cache line, which only the last part has
  const auto operation = begin(std::move(request));
  start(*operation, {&hosts_, &switch_}, &hosts_);
  EXPECT_EQ(operation->rails(), rail_bit(1));
  EXPECT_EQ(operation->allocation_number(), 2u);
  for (FakeEngine* engine : {&switch_, &hosts_}) engine->tasks[0]->finish(TaskState::kDone);
  const LaneTimes times = operation->lane_times(3);
  ASSERT_EQ(times.size(), 3u);
  EXPECT_EQ(times[0], 0);
  EXPECT_GT(times[1], 0);
  EXPECT_EQ(times[2], 0);
}

TEST_F(RunningOperationTest, TimesBesideOtherOperationsDoNotCount) {
  const auto operation = started({&hosts_, &switch_});
  operation->set_disturbed();
  for (FakeEngine* engine : {&switch_, &hosts_}) engine->tasks[0]->finish(TaskState::kDone);
  EXPECT_EQ(operation->lane_times(2), LaneTimes(2));
}

// ---- The gate ----------------------------------------------------------------------------------

TEST_F(RunningOperationTest, AGateHoldsWhatTheHostsCarryUntilAllHaveStarted) {
  const auto operation = begin(allreduce());
  start(*operation, {&hosts_, &hosts_}, &hosts_);
  ASSERT_EQ(hosts_.tasks.size(), 3u);
  const Operation& gate = hosts_.tasks[2]->slice.operation;
  EXPECT_EQ(gate.collective, Collective::kBarrier);
  EXPECT_EQ(gate.id(), operation->id());
  EXPECT_GT(hosts_.tasks[2]->slice.lane, 1);
  EXPECT_EQ(hosts_.tasks[2]->slice.rails, group_.rails);
  for (const int task : {0, 1}) hosts_.tasks[task]->finish(TaskState::kDone);
  EXPECT_FALSE(operation->over());
  hosts_.tasks[2]->finish(TaskState::kDone);
  EXPECT_TRUE(operation->over());
}

TEST_F(RunningOperationTest, APartOnASwitchNeedsNoGateUntilTheHostsCarryIt) {
  const auto operation = begin(allreduce());
  start(*operation, {&hosts_, &switch_}, &hosts_);
  EXPECT_EQ(hosts_.started, 1);
  operation->freeze(switch_, 2);
  const Repair again{operation->id(), {}};
  EXPECT_TRUE(repair(*operation, 1, &again).ok());
  ASSERT_EQ(hosts_.tasks.size(), 3u);
  EXPECT_EQ(hosts_.tasks[2]->slice.operation.collective, Collective::kBarrier);
}

// ---- For the handle ----------------------------------------------------------------------------

TEST_F(RunningOperationTest, AWaiterGivesUpAtItsOwnDeadlineAndWakesUpAtTheEnd) {
  const auto operation = started({&hosts_});
  without_lock([&] {
    EXPECT_FALSE(operation->wait(now()));
    EXPECT_FALSE(operation->test());
    std::thread other([&] {
      const Progress::Guard guard(setup_.progress());
      hosts_.tasks[0]->finish(TaskState::kDone);
    });
    EXPECT_TRUE(operation->wait(kForEver));
    other.join();
  });
}

TEST_F(RunningOperationTest, TheCallerMayCancelItUntilItIsOver) {
  const auto operation = started({&hosts_});
  const auto other = started({&switch_});
  switch_.tasks[0]->finish(TaskState::kDone);
  without_lock([&] {
    other->cancel();
    EXPECT_TRUE(owner_.failures.empty()) << "it was over already";
    operation->cancel();
  });
  EXPECT_TRUE(operation->over());
  EXPECT_EQ(hosts_.fenced, 1);
  EXPECT_EQ(error_of(*operation),
            "nezha: rank 0 of 2: allreduce (tag 3, 4096 bytes) was cancelled by its caller");
}

TEST_F(RunningOperationTest, TheCallersFunctionIsCalledOnceAtTheEnd) {
  const auto operation = started({&hosts_});
  int calls = 0;
  without_lock([&] {
    EXPECT_TRUE(operation->notify([&] { ++calls; }));
    EXPECT_FALSE(operation->notify([&] { calls += 10; })) << "there is one already";
  });
  EXPECT_EQ(calls, 0);
  hosts_.tasks[0]->finish(TaskState::kDone);
  EXPECT_EQ(calls, 1);
  const auto failed = started({&hosts_});
  without_lock([&] { EXPECT_TRUE(failed->notify([&] { ++calls; })); });
  failed->fail(absl::UnavailableError("rank 1 is gone"));
  EXPECT_EQ(calls, 2);
}

TEST_F(RunningOperationTest, TheCallersFunctionIsCalledAtOnceIfItIsOver) {
  const auto operation = started({&hosts_});
  hosts_.tasks[0]->finish(TaskState::kDone);
  int calls = 0;
  without_lock([&] { EXPECT_TRUE(operation->notify([&] { ++calls; })); });
  EXPECT_EQ(calls, 1);
}

TEST_F(RunningOperationTest, MayOutliveItsContextAndItsProcessesConnections) {
  const auto operation = started({&hosts_});
  operation->fail(absl::CancelledError("the context was destroyed"));
  setup_.progress().run_deferred();
  guard_.reset();
  setup_.endpoint.reset();
  operation->cancel();
  EXPECT_TRUE(operation->test());
  EXPECT_TRUE(operation->wait(0));
  int calls = 0;
  EXPECT_TRUE(operation->notify([&] { ++calls; }));
  EXPECT_EQ(calls, 1);
  EXPECT_EQ(error_of(*operation), "nezha: rank 0 of 2: the context was destroyed");
}

TEST_F(RunningOperationTest, OnlyAReceiveThatHasSucceededHasASource) {
  Loopback loopback;
  const auto exchange = std::make_shared<Exchange>(
      Exchange::Terms{.is_send = false, .peers = {1}, .tag = 7}, loopback);
  exchange->set_source(1);  // the message is on its way
  exchange->set_received_bytes(4);
  for (const TaskState end : {TaskState::kDone, TaskState::kFailed}) {
    Request request = allreduce();
    request.exchange = exchange;
    const auto operation = begin(std::move(request));
    start(*operation, {&hosts_});
    const auto expect_message = [&](int source, size_t bytes) {
      without_lock([&] {
        EXPECT_EQ(operation->source(), source);
        EXPECT_EQ(operation->received_bytes(), bytes);
      });
    };
    expect_message(-1, 0);
    const bool fails = end == TaskState::kFailed;
    hosts_.tasks.back()->finish(
        end, fails ? absl::UnavailableError("rank 1 is gone") : absl::OkStatus());
    expect_message(fails ? -1 : 1, fails ? 0 : 4);
  }
  const auto collective = started({&switch_});
  switch_.tasks[0]->finish(TaskState::kDone);
  without_lock([&] { EXPECT_EQ(collective->source(), -1); });
}

TEST_F(RunningOperationTest, AChildOfForkCannotUseIt) {
  const auto operation = started({&hosts_});
  const pid_t child = fork();
  if (child == 0) {
    int refused = 0;
    const auto expect_refusal = [&](const auto& call) {
      try {
        call();
      } catch (const InvalidArgument&) {
        ++refused;
      }
    };
    expect_refusal([&] { operation->test(); });
    expect_refusal([&] { operation->wait(0); });
    expect_refusal([&] { operation->cancel(); });
    expect_refusal([&] { operation->notify([] {}); });
    _exit(refused);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 4);
  EXPECT_FALSE(operation->over());
}

}  // namespace
}  // namespace nezha
