// SPDX-License-Identifier: Apache-2.0
// What a context is asked to do.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/container/inlined_vector.h"
#include "absl/status/status.h"
#include "collectives/engine.h"
#include "common/buffer_pool.h"
#include "common/clock.h"
#include "context/exchange.h"

namespace nezha {

struct Request {
  Operation operation;
  EnginePlan plan;
  bool is_by_size = false;                    // the algorithm: what all ranks plan may be another
  uint64_t signature = 0;                     // of the two; collectives/signature.h
  absl::InlinedVector<std::byte*, 1> copies;  // where the result goes too
  Buffer read;              // in place of the caller's input: a sum of several, or a copy
  Buffer result;            // where it is made, if its place is an input's meanwhile
  absl::Status prepared;    // whether they could be summed
  ReduceFunction function;  // of a custom operation
  Nanos deadline = 0;
  std::chrono::milliseconds timeout{0};
  bool polls = true;  // who waits for it
  // Of a send or a receive, whose `operation` tells how many bytes it has and nothing else. Null
  // of a collective.
  std::shared_ptr<Exchange> exchange;

  std::string name() const;  // of the operation, for errors: "allreduce (tag 0, 4 bytes)"
};

}  // namespace nezha
