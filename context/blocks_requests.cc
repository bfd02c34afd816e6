// SPDX-License-Identifier: Apache-2.0
// Requests of the collectives whose vector is made of blocks, from their options.
#include <cstring>
#include <vector>

#include "absl/strings/str_cat.h"
#include "context/blocks.h"
#include "context/context_impl.h"
#include "context/memory.h"

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

RunningOperation::Request ContextImpl::request_blocks(const BlocksOptions& options,
                                                      Collective collective) const {
  RunningOperation::Request request;
  Operation& op = request.operation;
  op.collective = collective;
  const CollectiveTraits& traits = nezha::traits(collective);
  if (traits.to_root != nullptr) op.root = checked_root(traits.name, options.root_);
  const absl::Status status =
      place_blocks(given(options.input_), given(options.output_), options_.rank, options_.size, op);
  if (!status.ok()) refuse(traits.name, status.message());
  if (!checks_pointers_) return request;
  std::vector<MemoryRange> ranges;
  const auto add = [&](const char* name, const std::byte* begin, size_t bytes, bool is_written) {
    if (begin == nullptr || bytes == 0) return;
    ranges.push_back({name, reinterpret_cast<uintptr_t>(begin), bytes, is_written});
  };
  add("input 0", op.input, input_bytes(op, options_.rank), false);
  add("output 0", op.output, output_bytes(op, options_.rank), true);
  const absl::Status memory = check_memory(ranges);
  if (!memory.ok()) refuse(traits.name, memory.message());
  return request;
}

RunningOperation::Request ContextImpl::request_moved(const BlocksOptions& options,
                                                     Collective collective) const {
  auto request = request_blocks(options, collective);
  Operation& op = request.operation;
  // What comes is not to take the place of what is yet to be sent.
  const bool is_exchanged_in_place = op.received_blocks != nullptr && op.input == op.output;
  if (is_exchanged_in_place && op.bytes() > 0) {
    request.read = endpoint_->pool().take(op.bytes());
    std::memcpy(request.read.data(), op.input, op.bytes());
    op.input = request.read.data();
  }
  complete(request, options, options.algorithm_);
  return request;
}

RunningOperation::Request ContextImpl::request(const ReduceScatterOptions& options) const {
  check_reduction("reduce_scatter", options);
  auto request = request_blocks(options, Collective::kReduceScatter);
  Operation& op = request.operation;
  op.operation = options.operation_;
  op.commutative = options.commutative_;
  op.reproducible = options.reproducible_;
  if (op.operation == ReduceOperation::kCustom) request.function = options.function_;
  // The result is not to overwrite another rank's block of the input before that is sent.
  const bool is_at_begin = op.output == op.input && op.output_offset != 0;
  const size_t bytes = output_bytes(op, options_.rank);
  if (is_at_begin && bytes > 0) {
    request.result = endpoint_->pool().take(bytes);
    request.copies.push_back(op.output);
    op.output = request.result.data();
  }
  complete(request, options, options.algorithm_);
  return request;
}

RunningOperation::Request ContextImpl::request(const AllgatherOptions& options) const {
  return request_moved(options, Collective::kAllgather);
}

RunningOperation::Request ContextImpl::request(const AlltoallOptions& options) const {
  return request_moved(options, Collective::kAlltoall);
}

RunningOperation::Request ContextImpl::request(const AlltoallvOptions& options) const {
  return request_moved(options, Collective::kAlltoallv);
}

RunningOperation::Request ContextImpl::request(const GatherOptions& options) const {
  return request_moved(options, Collective::kGather);
}

RunningOperation::Request ContextImpl::request(const GathervOptions& options) const {
  return request_moved(options, Collective::kGatherv);
}

RunningOperation::Request ContextImpl::request(const ScatterOptions& options) const {
  return request_moved(options, Collective::kScatter);
}

RunningOperation::Request ContextImpl::request(const ScattervOptions& options) const {
  return request_moved(options, Collective::kScatterv);
}

}  // namespace nezha
