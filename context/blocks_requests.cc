// SPDX-License-Identifier: Apache-2.0
// Makes the requests of collectives whose vector is made of blocks, from their options.
#include <cstring>
#include <vector>

#include "absl/strings/str_cat.h"
#include "context/blocks.h"
#include "context/memory.h"
#include "context/requests.h"

namespace nezha {
namespace {

template <typename Vector>
GivenVector given(const Vector& vector) {
  return {static_cast<const std::byte*>(vector.data),
          vector.type,
          vector.elements,
          vector.counts,
          vector.has_counts,
          vector.is_set};
}

}  // namespace

Request RequestMaker::make_blocks(const BlocksOptions& options, Collective collective) const {
  Request request;
  Operation& op = request.operation;
  op.collective = collective;
  const CollectiveTraits& traits = nezha::traits(collective);
  if (traits.to_root != nullptr) op.root = checked_root(traits.name, options.root_);
  const absl::Status status =
      place_blocks(given(options.input_), given(options.output_), setup_.rank(), setup_.size(), op);
  if (!status.ok()) refuse(traits.name, status.message());
  if (!setup_.checks_pointers) return request;
  std::vector<MemoryRange> ranges;
  const auto add = [&](const char* name, const std::byte* begin, size_t bytes, bool is_written) {
    if (begin == nullptr || bytes == 0) return;
    ranges.push_back({name, reinterpret_cast<uintptr_t>(begin), bytes, is_written});
  };
  add("input 0", op.input, input_bytes(op, setup_.rank()), false);
  add("output 0", op.output, output_bytes(op, setup_.rank()), true);
  const absl::Status memory = check_memory(ranges);
  if (!memory.ok()) refuse(traits.name, memory.message());
  return request;
}

Request RequestMaker::make_moved(const BlocksOptions& options, Collective collective) const {
  auto request = make_blocks(options, collective);
  Operation& op = request.operation;
  // Sends from a copy, so that received blocks do not overwrite blocks that are not sent yet.
  const bool is_exchanged_in_place = op.received_blocks != nullptr && op.input == op.output;
  if (is_exchanged_in_place && op.bytes() > 0) {
    request.read = setup_.endpoint->pool().take(op.bytes());
    std::memcpy(request.read.data(), op.input, op.bytes());
    op.input = request.read.data();
  }
  complete(request, options, options.algorithm_);
  return request;
}

Request RequestMaker::make(const ReduceScatterOptions& options) const {
  check_reduction("reduce_scatter", options);
  auto request = make_blocks(options, Collective::kReduceScatter);
  Operation& op = request.operation;
  op.operation = options.operation_;
  op.commutative = options.commutative_;
  op.reproducible = options.reproducible_;
  if (op.operation == ReduceOperation::kCustom) request.function = options.function_;
  // Makes the result in a buffer, so that it does not overwrite another rank's block of the input
  // before that block is sent.
  const bool is_at_begin = op.output == op.input && op.output_offset != 0;
  const size_t bytes = output_bytes(op, setup_.rank());
  if (is_at_begin && bytes > 0) {
    request.result = setup_.endpoint->pool().take(bytes);
    request.copies.push_back(op.output);
    op.output = request.result.data();
  }
  complete(request, options, options.algorithm_);
  return request;
}

Request RequestMaker::make(const AllgatherOptions& options) const {
  return make_moved(options, Collective::kAllgather);
}

Request RequestMaker::make(const AlltoallOptions& options) const {
  return make_moved(options, Collective::kAlltoall);
}

Request RequestMaker::make(const AlltoallvOptions& options) const {
  return make_moved(options, Collective::kAlltoallv);
}

Request RequestMaker::make(const GatherOptions& options) const {
  return make_moved(options, Collective::kGather);
}

Request RequestMaker::make(const GathervOptions& options) const {
  return make_moved(options, Collective::kGatherv);
}

Request RequestMaker::make(const ScatterOptions& options) const {
  return make_moved(options, Collective::kScatter);
}

Request RequestMaker::make(const ScattervOptions& options) const {
  return make_moved(options, Collective::kScatterv);
}

}  // namespace nezha
