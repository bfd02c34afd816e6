// SPDX-License-Identifier: Apache-2.0
// An engine whose tasks move nothing, and end when the test says so.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "collectives/engine.h"

namespace nezha::testing {

class FakeEngine;

class FakeTask final : public Task {
 public:
  FakeTask(FakeEngine& engine, const Slice& its_slice, const EnginePlan& its_plan, TaskOwner& owner)
      : Task(owner), slice(its_slice), plan(its_plan), engine_(engine) {}
  ~FakeTask() override;

  using Task::finish;
  std::string describe() const override { return "a task waits for rank 1"; }

  const Slice slice;
  const EnginePlan plan;
  ChunkMap final;  // what it has by the time that it is fenced

 private:
  void detach() override;
  ChunkMap final_chunks() const override { return final; }

  FakeEngine& engine_;
};

class FakeEngine final : public Engine {
 public:
  absl::Status supports(const Operation&) const override { return unsupported; }
  std::vector<int> peers(const Group&, const Operation&, const EnginePlan&) const override {
    return {};
  }
  absl::StatusOr<std::unique_ptr<Task>> start(const Group&, const Slice& slice,
                                              const EnginePlan& plan, TaskOwner& owner) override {
    if (!refusal.ok()) return refusal;
    ++started;
    auto task = std::make_unique<FakeTask>(*this, slice, plan, owner);
    tasks.push_back(task.get());
    if (begins_as != Task::State::kRunning) {
      task->finish(begins_as, begins_as == Task::State::kFailed ? failure : absl::OkStatus());
    }
    return task;
  }

  absl::Status unsupported;                       // an error: the engine can carry out nothing
  absl::Status refusal;                           // an error: nothing can be started
  Task::State begins_as = Task::State::kRunning;  // the state of tasks that have just started
  absl::Status failure = absl::UnavailableError("rank 1 is gone");  // of tasks that begin as failed
  std::vector<FakeTask*> tasks;  // those that have not been destroyed, the oldest first
  int started = 0;
  int fenced = 0;  // tasks that were running when they were fenced
};

inline FakeTask::~FakeTask() { std::erase(engine_.tasks, this); }

inline void FakeTask::detach() {
  if (poll() == State::kRunning) ++engine_.fenced;
}

}  // namespace nezha::testing
