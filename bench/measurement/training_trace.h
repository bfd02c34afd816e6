// SPDX-License-Identifier: Apache-2.0
// Traces of a training's steps: how long a rank computes before each allreduce, and of how many
// bytes the allreduce is.
#pragma once

#include <chrono>
#include <cstddef>
#include <istream>
#include <string>
#include <vector>

namespace nezha::bench {

struct TracedOperation {
  std::chrono::duration<double, std::micro> gap{};  // the computation before it begins
  size_t bytes = 0;
};

// A step's operations begin in this order, and the step ends when all of them are over.
using TracedStep = std::vector<TracedOperation>;

// Reads a trace. Each line is one of these:
//   GAP_US BYTES   an operation: microseconds of computation before it, and its length
//   step           ends a step that has operations; the end of the file does, too
//   # ...          a comment, which may also end another line
// A blank line means nothing. Each length is a multiple of `element` bytes. Throws UsageError,
// which names `file` and the line.
std::vector<TracedStep> read_training_trace(std::istream& text, const std::string& file,
                                            size_t element);

// Reads a trace from a file.
std::vector<TracedStep> read_training_trace(const std::string& file, size_t element);

size_t bytes_of(const TracedStep& step);

}  // namespace nezha::bench
