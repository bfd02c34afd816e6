// SPDX-License-Identifier: Apache-2.0
// What tests of operations share: an owner, and engines whose tasks end when the test says so.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "context/running_operation.h"
#include "gtest/gtest.h"
#include "nezha/errors.h"
#include "tests/unit/context/fake_engine.h"

namespace nezha::testing {

// A context, as its operations see it.
struct OwnerOfOperations final : RunningOperationOwner {
  void on_failed(const absl::Status& why) override {
    failures.push_back(why);
    for (const auto& operation : std::vector(running)) operation->fail(why);
  }
  void on_operation_slow(const RunningOperation& operation) override { slow.push_back(&operation); }
  void on_operation_overdue(const RunningOperation&) override { ++overdue; }
  bool is_cut_off() const override { return false; }
  std::string absent(const RunningOperation&) const override { return "rank 1 has not entered it"; }
  std::vector<int> missing(const RunningOperation&) const override { return {1}; }
  void on_operation_over(RunningOperation& operation) override {
    ++over;
    std::erase_if(running, [&](const auto& other) { return other.get() == &operation; });
  }
  void on_engine_lost(int lane) override { lost.push_back(lane); }
  std::string why_frozen() const override { return "an engine is lost"; }

  std::vector<std::shared_ptr<RunningOperation>> running;
  std::vector<absl::Status> failures;
  std::vector<const RunningOperation*> slow;
  std::vector<int> lost;  // lanes
  int overdue = 0;
  int over = 0;
};

class OperationFixture : public ::testing::Test {
 protected:
  static constexpr size_t kElements = 1024;
  static constexpr size_t kBytes = kElements * sizeof(uint32_t);

  OperationFixture() : setup_(*Endpoint::create(), nullptr, options(), UniqueId{7, 7}) {
    guard_.emplace(setup_.progress());
    group_ = {.rank = 0,
              .size = 2,
              .context = 7,
              .channels = {nullptr, nullptr},
              .pool = &setup_.endpoint->pool(),
              .rails = 0b11};
  }
  ~OperationFixture() override {
    if (setup_.endpoint == nullptr) return;
    owner_.on_failed(absl::CancelledError("the test is over"));
    setup_.progress().run_deferred();
    guard_.reset();
  }

  static ContextOptions options() {
    ContextOptions options;
    options.rank = 0;
    options.size = 2;
    return options;
  }
  // An allreduce in place.
  Request allreduce(Nanos patience = 600 * kSecond) {
    Request request;
    request.operation.output = reinterpret_cast<std::byte*>(vector_.data());
    request.operation.input = request.operation.output;
    request.operation.elements = kElements;
    request.operation.element_size = sizeof(uint32_t);
    request.operation.type = DataType::kUint32;
    request.operation.tag = 3;
    request.plan.schedule = ScheduleKind::kRecursiveDoubling;
    request.timeout = std::chrono::milliseconds(patience / kMillisecond);
    request.deadline = now() + patience;
    return request;
  }
  std::shared_ptr<RunningOperation> begin(Request request) {
    auto operation = std::make_shared<RunningOperation>(owner_, setup_, std::move(request));
    owner_.running.push_back(operation);
    operation->begin(++ordinal_);
    return operation;
  }
  // Divides the operation equally among the engines, each of which has a lane and a rail. A null
  // engine is one that is lost.
  void start(RunningOperation& operation, const std::vector<Engine*>& engines,
             Engine* gate = nullptr) {
    Assignment assignment;
    assignment.plan = 5;
    assignment.number = 2;
    assignment.gate = gate;
    const auto share = static_cast<uint32_t>(SliceBounds::kWhole / engines.size());
    for (uint32_t i = 0; i < engines.size(); ++i) {
      assignment.slices.push_back({{operation.request().operation,
                                    {i * share, (i + 1) * share},
                                    static_cast<uint8_t>(i),
                                    rail_bit(static_cast<Rail>(i))},
                                   engines[i],
                                   operation.request().plan.schedule});
    }
    operation.start(group_, std::move(assignment));
  }
  std::shared_ptr<RunningOperation> started(const std::vector<Engine*>& engines) {
    auto operation = begin(allreduce());
    start(*operation, engines);
    return operation;
  }
  absl::Status repair(RunningOperation& operation, int lane, const Repair* repair,
                      uint32_t number = 1) {
    return operation.repair(hosts_, group_, lane, /*epoch=*/9, repair, number);
  }
  // Calls what takes the lock.
  void without_lock(const std::function<void()>& call) {
    guard_.reset();
    call();
    guard_.emplace(setup_.progress());
  }
  template <typename Error = IoError>
  static std::string error_of(const RunningOperation& operation) {
    try {
      operation.raise_if_failed();
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  }

  FakeEngine hosts_, switch_;
  OwnerOfOperations owner_;
  std::vector<uint32_t> vector_ = std::vector<uint32_t>(kElements, 1);
  nezha::Setup setup_;
  std::optional<Progress::Guard> guard_;  // held, so that no other thread drives
  Group group_;
  uint64_t ordinal_ = 0;
};

}  // namespace nezha::testing
