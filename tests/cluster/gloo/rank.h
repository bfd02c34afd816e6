// SPDX-License-Identifier: Apache-2.0
// One rank of a job: its device, its contexts, and a way to meet the other ranks without them.
#pragma once

#include <gloo/context.h>
#include <gloo/rendezvous/store.h>
#include <gloo/transport/device.h>
#include <gloo/transport/unbound_buffer.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cluster/gloo/data.h"
#include "cluster/gloo/options.h"

namespace nezha::gloo_cases {

// Every rank must call context(), connect(), meet() and tag() in the same order.
class Rank {
 public:
  // The store outlives the rank.
  Rank(int number, const Options& all_options, gloo::rendezvous::Store& store);

  const int rank;
  const int size;
  const Options& options;

  int next() const { return (rank + 1) % size; }
  int previous() const { return (rank + size - 1) % size; }
  std::vector<int> others() const;

  std::shared_ptr<gloo::transport::Device>& device() { return device_; }

  // The context that cases share until one of them breaks it.
  std::shared_ptr<gloo::Context> context();

  // A context for this case only, which lives until the case has ended on all ranks.
  std::shared_ptr<gloo::Context> connect() { return connect(options.timeout); }
  std::shared_ptr<gloo::Context> connect(std::chrono::milliseconds timeout) {
    return connect(timeout, device_);
  }
  std::shared_ptr<gloo::Context> connect(std::chrono::milliseconds timeout,
                                         std::shared_ptr<gloo::transport::Device>& device);

  // Returns when all ranks are here; does not use the device. Throws if a rank does not come.
  void meet();

  // What a rank, or something else with a number, contributes to an operation.
  template <typename T>
  Values<T> values(uint64_t operation, uint64_t of) const {
    return {options.seed, operation, of};
  }

  // A number that no other operation has.
  uint32_t tag() { return ++tag_; }

  // Keeps the object until the case has ended on all ranks.
  template <typename T>
  T& keep(std::shared_ptr<T> object) {
    kept_.push_back(object);
    return *object;
  }

  // Drops the context that was connected last.
  void release() { kept_.pop_back(); }

  // Adds a part of the case's outcome.
  void note(const std::string& what) {
    if (!what.empty()) notes_ += (notes_.empty() ? "" : ", ") + what;
  }

  // Returns the case's outcome: what was noted and, after "failed: ", what was thrown. The ranks
  // agree whether the shared context is still usable.
  std::string finish(const std::string& thrown);

 private:
  // No case has as many meetings.
  static constexpr int kMeetings = 1000;
  static constexpr uint32_t kTags = 100000;

  std::string meeting();
  void await_all(const std::string& meeting, std::chrono::milliseconds patience);

  gloo::rendezvous::Store& store_;
  std::shared_ptr<gloo::transport::Device> device_;
  std::shared_ptr<gloo::Context> context_;
  std::vector<std::shared_ptr<void>> kept_;
  std::string notes_;
  uint32_t tag_ = 0;
  int meetings_ = 0;
  int contexts_ = 0;
};

}  // namespace nezha::gloo_cases
