// SPDX-License-Identifier: Apache-2.0
// Declares what a library must offer to be measured.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "nezha/context.h"
#include "nezha/types.h"

namespace nezha::bench {

// One thread's collective, ready to be repeated: each call of run() is one operation.
class Operation {
 public:
  virtual ~Operation() = default;
  virtual void run() = 0;
};

// An operation, ready to be repeated, that runs in the background while its caller does something
// else.
class AsyncOperation {
 public:
  // If the operation is under way, waits until it does not use the memory any more.
  virtual ~AsyncOperation() = default;
  // Begins the operation. All ranks begin theirs in the same order.
  virtual void start() = 0;
  // Returns when the operation is over; throws what it threw.
  virtual void wait() = 0;
};

// One thread's collective. The root is rank 0.
struct Request {
  std::string collective;  // one of the program's (Dialect::collectives)
  DataType type = DataType::kFloat32;
  ReduceOperation operation = ReduceOperation::kSum;  // the operation where the collective reduces
  void* input = nullptr;
  void* output = nullptr;  // may be the input
  size_t elements = 0;
  uint32_t tag = 0;  // operations of different tags may run at the same time
};

// The bytes that a rail carried.
struct RailBytes {
  std::string name;
  double bytes = 0;
};

// A group of ranks that is connected by the library under test.
class Runner {
 public:
  virtual ~Runner() = default;

  // The memory belongs to the caller. Every program has the float32 sum.
  virtual std::unique_ptr<Operation> prepare(const Request& request) = 0;

  // Prepares an allreduce that runs in the background. Returns null if the library has none.
  virtual std::unique_ptr<AsyncOperation> prepare_async(const Request& /*request*/) {
    return nullptr;
  }

  // Returns what this rank has sent so far, by rail, always in the same order.
  virtual std::vector<RailBytes> bytes_sent() const = 0;

  // Returns the names of the devices on which the library runs, or "" if it has none.
  virtual std::string device() const { return ""; }

  // Returns what rank 0 has learned about messages of that size, such as "converged eth0 70.1% eth1
  // 29.9%", or "" if it has learned nothing.
  virtual std::string learned(size_t /*bytes*/) const { return ""; }

  // These return what Context::rails() and Context::balance() say, or nothing if the library is not
  // nezha.
  virtual std::vector<RailStats> rails() const { return {}; }
  virtual BalanceStats balance() const { return {}; }
};

// Returns what this rank has sent so far by each of these rails, in their order; nothing by a rail
// that it lacks.
inline std::vector<RailBytes> bytes_sent_by(const Runner& runner,
                                            const std::vector<std::string>& rails) {
  std::vector<RailBytes> all;
  all.reserve(rails.size());
  for (const auto& name : rails) all.push_back({name, 0});
  for (const auto& mine : runner.bytes_sent()) {
    for (auto& rail : all) {
      if (rail.name == mine.name) rail.bytes += mine.bytes;
    }
  }
  return all;
}

}  // namespace nezha::bench
