// SPDX-License-Identifier: Apache-2.0
// Ranks that are threads of this process. Their collectives move and add up vectors in memory, and
// take no time but what a test has them take.
#pragma once

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "bench/measurement/options.h"
#include "bench/measurement/pattern.h"
#include "bench/measurement/runner.h"
#include "gtest/gtest.h"
#include "nezha/errors.h"

namespace nezha::bench {

constexpr const char* kGone = "another rank has gone";
constexpr const char* kWrongResult = "a wrong result";

// What the steady clock says in this thread, if it is a rank. A rank that sleeps moves its clock,
// and takes no real time. For that, rank_clock.cc defines the clock and the sleep of the
// executable.
inline thread_local std::optional<std::chrono::nanoseconds> rank_time;

inline std::string text_of(const std::vector<RailBytes>& rails) {
  std::string text;
  for (const RailBytes& rail : rails) absl::StrAppend(&text, rail.name, " ", rail.bytes, " ");
  return text;
}

using Vectors = std::map<int, std::vector<float>>;  // by rank
using Errors = std::vector<std::string>;            // by rank

inline std::vector<float> sum_of(const Vectors& inputs) {
  std::vector<float> sum(inputs.at(0).size());
  for (const auto& [rank, input] : inputs) {
    std::transform(sum.begin(), sum.end(), input.begin(), sum.begin(), std::plus<>());
  }
  return sum;
}

inline std::vector<float> block_of(const std::vector<float>& vector, int rank, size_t elements) {
  const float* const block = &vector[static_cast<size_t>(rank) * elements];
  return {block, block + elements};
}

// Returns a rank's result. The root is rank 0.
inline std::vector<float> result_of(const Request& request, int rank, const Vectors& inputs) {
  const std::string& name = request.collective;
  if (name == "allreduce" || (name == "reduce" && rank == 0)) return sum_of(inputs);
  if (name == "reduce_scatter") return block_of(sum_of(inputs), rank, request.elements);
  if (name == "broadcast") return inputs.at(0);
  if (name == "scatter") return block_of(inputs.at(0), rank, request.elements);
  if (name == "send_recv") return rank == 0 ? inputs.rbegin()->second : inputs.at(rank - 1);
  std::vector<float> result;
  for (const auto& [from, input] : inputs) {
    std::vector<float> part;
    if (name == "allgather" || (name == "gather" && rank == 0)) part = input;
    if (name == "alltoall") part = block_of(input, rank, request.elements);
    result.insert(result.end(), part.begin(), part.end());
  }
  return result;
}

// What the ranks give to each other. A tag's operations of the same number are one operation.
class FakeGroup {
 public:
  explicit FakeGroup(int size) : size_(static_cast<size_t>(size)) {}
  size_t size() const { return size_; }

  // Adds a rank's input to the tag's next operation.
  void give(uint32_t tag, int rank, std::vector<float> input) {
    const std::lock_guard lock(mutex_);
    Inputs& inputs = inputs_[tag];
    inputs.coming[rank] = std::move(input);
    if (inputs.coming.size() < size_) return;
    inputs.all = std::exchange(inputs.coming, {});
    ++inputs.operations;
    changed_.notify_all();
  }

  // Waits for the inputs of all ranks. Throws if a rank has gone without giving its own.
  Vectors take(uint32_t tag, size_t number) {
    std::unique_lock lock(mutex_);
    Inputs& inputs = inputs_[tag];
    // The ranks' steady clocks stand still while they wait.
    const auto deadline = std::chrono::system_clock::now() + std::chrono::seconds(60);
    changed_.wait_until(lock, deadline, [&] { return inputs.operations > number || is_broken_; });
    if (inputs.operations > number) return inputs.all;
    throw IoError(is_broken_ ? kGone : "the ranks wait for each other");
  }

  // A rank takes part no more.
  void leave() {
    const std::lock_guard lock(mutex_);
    is_broken_ = true;
    changed_.notify_all();
  }

 private:
  struct Inputs {
    Vectors coming;
    Vectors all;            // of the last complete operation
    size_t operations = 0;  // that are complete
  };

  const size_t size_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<uint32_t, Inputs> inputs_;
  bool is_broken_ = false;
};

class FakeRunner : public Runner {
 public:
  // `number` counts the rank's operations of that tag, from 0.
  using Hook = std::function<void(const Request& request, size_t number)>;

  FakeRunner(FakeGroup& group, int rank) : group_(group), rank_(rank) {}
  ~FakeRunner() override { group_.leave(); }

  std::unique_ptr<Operation> prepare(const Request& request) override {
    return std::make_unique<FakeOperation>(*this, request);
  }
  std::unique_ptr<AsyncOperation> prepare_async(const Request& request) override {
    return std::make_unique<FakeOperation>(*this, request);
  }
  std::vector<RailBytes> bytes_sent() const override {
    const std::lock_guard lock(mutex_);
    std::vector<RailBytes> sent = sent_by_each;
    for (RailBytes& rail : sent) rail.bytes *= static_cast<double>(operations_);
    return sent;
  }
  std::string device() const override { return "device of rank " + std::to_string(rank_); }
  std::string learned(size_t bytes) const override {
    return "learned of " + std::to_string(bytes) + " bytes";
  }

  // Makes the last element of one result what it was in the result before.
  void spoil(uint32_t tag, size_t number) { spoilt_ = {tag, number}; }

  std::vector<RailBytes> sent_by_each;  // what each operation sends, also one that is not measured
  Hook before = [](const Request&, size_t) {};  // is called when an operation starts
  Hook after = [](const Request&, size_t) {};   // is called when the result is there

 private:
  class FakeOperation final : public Operation, public AsyncOperation {
   public:
    FakeOperation(FakeRunner& runner, Request request)
        : runner_(runner), request_(std::move(request)) {}
    void run() override {
      start();
      wait();
    }
    void start() override {
      number_ = runner_.count(request_.tag);
      runner_.before(request_, number_);
      const auto* const input = static_cast<const float*>(request_.input);
      runner_.group_.give(request_.tag, runner_.rank_,
                          {input, input + runner_.input_length(request_)});
    }
    void wait() override {
      const Vectors inputs = runner_.group_.take(request_.tag, number_);
      auto result = result_of(request_, runner_.rank_, inputs);
      if (runner_.spoilt_ == std::pair(request_.tag, number_)) result.back() = last_;
      if (!result.empty()) last_ = result.back();
      std::copy(result.begin(), result.end(), static_cast<float*>(request_.output));
      runner_.after(request_, number_);
    }

   private:
    FakeRunner& runner_;
    const Request request_;
    size_t number_ = 0;
    float last_ = -1;  // no result has this value
  };

  size_t count(uint32_t tag) {
    const std::lock_guard lock(mutex_);
    ++operations_;
    return by_tag_[tag]++;
  }
  size_t input_length(const Request& request) const {
    const std::string& name = request.collective;
    if (name == "scatter" && rank_ != 0) return 0;
    const bool has_blocks = name == "scatter" || name == "reduce_scatter" || name == "alltoall";
    return has_blocks ? group_.size() * request.elements : request.elements;
  }

  FakeGroup& group_;
  const int rank_;
  std::optional<std::pair<uint32_t, size_t>> spoilt_;
  mutable std::mutex mutex_;  // a benchmark may have several threads
  std::map<uint32_t, size_t> by_tag_;
  size_t operations_ = 0;
};

// Runs the program on each rank, in a thread and with options of its own. Returns what the ranks
// throw: nothing, kWrongResult for a WrongResult, or the error's text.
using RankProgram = std::function<void(FakeRunner&, Options&)>;
inline Errors run_ranks(const Options& options, const RankProgram& program) {
  FakeGroup group(options.size);
  Errors errors(group.size());
  std::vector<std::thread> threads(group.size());
  for (int rank = 0; rank < options.size; ++rank) {
    threads[static_cast<size_t>(rank)] = std::thread([&, rank] {
      rank_time = std::chrono::hours(1);
      FakeRunner runner(group, rank);
      Options its_options = options;
      its_options.rank = rank;
      try {
        program(runner, its_options);
      } catch (const WrongResult&) {
        errors[static_cast<size_t>(rank)] = kWrongResult;
      } catch (const std::exception& error) {
        errors[static_cast<size_t>(rank)] = error.what();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return errors;
}

// Returns whether the rank has thrown a WrongResult, in which case it has gone for the others.
// Expects that no rank has thrown anything else.
inline bool is_found_at(int rank, const Errors& errors) {
  if (errors == Errors(errors.size())) return false;
  Errors expected(errors.size(), kGone);
  expected[static_cast<size_t>(rank)] = kWrongResult;
  EXPECT_EQ(errors, expected);
  return errors == expected;
}

}  // namespace nezha::bench
