// SPDX-License-Identifier: Apache-2.0
// A request: what a context is asked to do.
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
  bool is_by_size = false;  // the algorithm was chosen by size, so a plan may choose another
  uint64_t signature = 0;   // the operation's and the plan's; collectives/signature.h
  absl::InlinedVector<std::byte*, 1> copies;  // further places for the result
  Buffer read;              // replaces the caller's input: a sum of several inputs, or a copy
  Buffer result;            // holds the result while its place still holds input
  absl::Status prepared;    // an error if the inputs could not be summed
  ReduceFunction function;  // a custom operation's
  Nanos deadline = 0;
  std::chrono::milliseconds timeout{0};
  bool polls = true;  // the waiter polls
  // It is set for a send or a receive, whose `operation` says only how many bytes it has. It is
  // null for a collective.
  std::shared_ptr<Exchange> exchange;

  std::string name() const;  // the operation's, for errors: "allreduce (tag 0, 4 bytes)"
};

}  // namespace nezha
