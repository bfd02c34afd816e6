// SPDX-License-Identifier: Apache-2.0
#include "bench/programs/gloo_part.h"

#include <gloo/allgather.h>
#include <gloo/allreduce.h>
#include <gloo/alltoall.h>
#include <gloo/barrier.h>
#include <gloo/broadcast.h>
#include <gloo/gather.h>
#include <gloo/math.h>
#include <gloo/reduce.h>
#include <gloo/scatter.h>
#include <gloo/types.h>

#include <cstring>
#include <type_traits>
#include <utility>
#include <vector>

#include "bench/measurement/element_type.h"
#include "bench/measurement/shape.h"

namespace nezha::bench {
namespace {

using SharedContext = std::shared_ptr<::gloo::Context>;

constexpr int kRoot = 0;

// The type as Gloo knows it. Gloo has no bfloat16, so gloo-bench leaves it out.
template <typename T>
using GlooType = std::conditional_t<std::is_same_v<T, Float16>, ::gloo::float16, T>;

// Returns body(TypeTag<T>()), where T is Gloo's type.
template <typename Body>
auto with_gloo_type(DataType type, const Body& body) {
  return with_type(type, [&](auto tag) {
    using T = typename decltype(tag)::Type;
    if constexpr (std::is_same_v<T, BFloat16>) {
      return body(TypeTag<float>());  // never happens
    } else {
      return body(TypeTag<GlooType<T>>());
    }
  });
}

using Function = void (*)(void* result, const void* a, const void* b, size_t elements);

Function function_of(DataType type, ReduceOperation operation) {
  return with_gloo_type(type, [operation](auto tag) -> Function {
    using T = typename decltype(tag)::Type;
    switch (operation) {
      case ReduceOperation::kProduct:
        return &::gloo::product<T>;
      case ReduceOperation::kMin:
        return &::gloo::min<T>;
      case ReduceOperation::kMax:
        return &::gloo::max<T>;
      default:
        return &::gloo::sum<T>;
    }
  });
}

template <typename GlooOptions, void (*kCollective)(GlooOptions&)>
class Repeated : public Operation {
 public:
  explicit Repeated(GlooOptions options) : options_(std::move(options)) {}
  void run() override { kCollective(options_); }

 private:
  GlooOptions options_;
};

void run_allreduce(::gloo::AllreduceOptions& options) { ::gloo::allreduce(options); }

// ---- Collectives whose vector is all of one kind ------------------------------------------------

template <typename GlooOptions>
void set_vectors(GlooOptions& options, const Request& request, Range range, bool has_input) {
  with_gloo_type(request.type, [&](auto tag) {
    using T = typename decltype(tag)::Type;
    T* const input = static_cast<T*>(request.input);
    T* const output = static_cast<T*>(request.output);
    const size_t elements = range.end - range.begin;
    if (has_input) options.setInput(input + range.begin, elements);
    options.setOutput(output + range.begin, elements);
  });
  options.setTag(request.tag);
}

std::unique_ptr<Operation> allreduce_part(const SharedContext& context, const Request& request,
                                          Range range, bool bcube) {
  using GlooOptions = ::gloo::AllreduceOptions;
  GlooOptions options(context);
  set_vectors(options, request, range, request.input != request.output);
  options.setAlgorithm(bcube ? GlooOptions::Algorithm::BCUBE : GlooOptions::Algorithm::RING);
  options.setReduceFunction(function_of(request.type, request.operation));
  return std::make_unique<Repeated<GlooOptions, run_allreduce>>(std::move(options));
}

std::unique_ptr<Operation> reduce_part(const SharedContext& context, const Request& request,
                                       Range range) {
  ::gloo::ReduceOptions options(context);
  set_vectors(options, request, range, request.input != request.output);
  options.setReduceFunction(function_of(request.type, request.operation));
  options.setRoot(kRoot);
  return std::make_unique<Repeated<::gloo::ReduceOptions, ::gloo::reduce>>(std::move(options));
}

std::unique_ptr<Operation> broadcast_part(const SharedContext& context, const Request& request,
                                          Range range) {
  ::gloo::BroadcastOptions options(context);
  set_vectors(options, request, range, context->rank == kRoot && request.input != request.output);
  options.setRoot(kRoot);
  return std::make_unique<Repeated<::gloo::BroadcastOptions, ::gloo::broadcast>>(
      std::move(options));
}

std::unique_ptr<Operation> barrier_part(const SharedContext& context, const Request& request) {
  ::gloo::BarrierOptions options(context);
  options.setTag(request.tag);
  return std::make_unique<Repeated<::gloo::BarrierOptions, ::gloo::barrier>>(std::move(options));
}

// ---- Collectives whose vector is made of blocks -------------------------------------------------

// The range of each block of a vector as one piece of memory: a part of the vector itself if it is
// contiguous there, and else a copy.
class Piece {
 public:
  // `block` and `range` are in bytes. There may be no blocks.
  Piece(void* vector, size_t blocks, size_t block, Range range)
      : vector_(static_cast<std::byte*>(vector) + range.begin),
        blocks_(blocks),
        block_(block),
        length_(range.end - range.begin) {
    if (blocks > 1 && length_ < block) copy_.resize(size());
  }

  std::byte* data() { return copy_.empty() ? vector_ : copy_.data(); }
  size_t size() const { return blocks_ * length_; }

  void copy_together() {
    for (size_t i = 0; i * length_ < copy_.size(); ++i) {
      std::memcpy(copy_.data() + i * length_, vector_ + i * block_, length_);
    }
  }

  void copy_apart() const {
    for (size_t i = 0; i * length_ < copy_.size(); ++i) {
      std::memcpy(vector_ + i * block_, copy_.data() + i * length_, length_);
    }
  }

 private:
  std::byte* const vector_;
  const size_t blocks_;
  const size_t block_;
  const size_t length_;
  std::vector<std::byte> copy_;
};

Range bytes_of(Range range, DataType type) {
  return {range.begin * sizeOf(type), range.end * sizeOf(type)};
}

Piece input_piece(const SharedContext& context, const Request& request, Range range) {
  const Shape shape = shape_of(request.collective, context->rank, context->size, request.elements);
  return {request.input, shape.input / request.elements, request.elements * sizeOf(request.type),
          bytes_of(range, request.type)};
}

Piece output_piece(const SharedContext& context, const Request& request, Range range) {
  const Shape shape = shape_of(request.collective, context->rank, context->size, request.elements);
  return {request.output, shape.output / request.elements, request.elements * sizeOf(request.type),
          bytes_of(range, request.type)};
}

// Moves bytes, whatever their type.
template <typename GlooBlocks, void (*kCollective)(GlooBlocks&)>
class Moving : public Operation {
 public:
  Moving(const SharedContext& context, const Request& request, Range range)
      : input_(input_piece(context, request, range)),
        output_(output_piece(context, request, range)),
        options_(context) {
    options_.setInput(input_.data(), input_.size());
    if (output_.size() > 0) options_.setOutput(output_.data(), output_.size());
    if constexpr (std::is_same_v<GlooBlocks, ::gloo::GatherOptions>) options_.setRoot(kRoot);
    options_.setTag(request.tag);
  }

  void run() override {
    input_.copy_together();
    kCollective(options_);
    output_.copy_apart();
  }

 private:
  Piece input_;
  Piece output_;
  GlooBlocks options_;
};

// A scatter takes each block from a place of its own, so that nothing is copied.
std::unique_ptr<Operation> scatter_part(const SharedContext& context, const Request& request,
                                        Range range) {
  const Range bytes = bytes_of(range, request.type);
  const size_t length = bytes.end - bytes.begin;
  std::vector<std::byte*> blocks;
  for (int rank = 0; context->rank == kRoot && rank < context->size; ++rank) {
    const size_t before = static_cast<size_t>(rank) * request.elements * sizeOf(request.type);
    blocks.push_back(static_cast<std::byte*>(request.input) + before + bytes.begin);
  }
  ::gloo::ScatterOptions options(context);
  if (!blocks.empty()) options.setInputs(blocks, length);
  options.setOutput(static_cast<std::byte*>(request.output) + bytes.begin, length);
  options.setRoot(kRoot);
  options.setTag(request.tag);
  return std::make_unique<Repeated<::gloo::ScatterOptions, ::gloo::scatter>>(std::move(options));
}

// Sums all blocks on every rank; the rank's own block is the result.
class ReduceScatter : public Operation {
 public:
  ReduceScatter(const SharedContext& context, const Request& request, Range range)
      : input_(input_piece(context, request, range)),
        sum_(input_.size()),
        output_(static_cast<std::byte*>(request.output) + bytes_of(range, request.type).begin),
        length_(input_.size() / static_cast<size_t>(context->size)),
        block_(sum_.data() + static_cast<size_t>(context->rank) * length_),
        allreduce_(allreduce_part(context, of_all(request), {0, sum_.size() / sizeOf(request.type)},
                                  /*bcube=*/false)) {}

  void run() override {
    input_.copy_together();
    allreduce_->run();
    std::memcpy(output_, block_, length_);
  }

 private:
  Request of_all(Request request) {
    request.input = input_.data();
    request.output = sum_.data();
    return request;
  }

  Piece input_;
  std::vector<std::byte> sum_;
  std::byte* const output_;
  const size_t length_;  // bytes
  const std::byte* const block_;
  const std::unique_ptr<Operation> allreduce_;
};

}  // namespace

std::unique_ptr<Operation> gloo_part(const std::shared_ptr<::gloo::Context>& context,
                                     const Request& request, Range range, bool bcube) {
  const std::string& collective = request.collective;
  if (collective == "reduce") return reduce_part(context, request, range);
  if (collective == "broadcast") return broadcast_part(context, request, range);
  if (collective == "barrier") return barrier_part(context, request);
  if (collective == "scatter") return scatter_part(context, request, range);
  if (collective == "reduce_scatter") {
    return std::make_unique<ReduceScatter>(context, request, range);
  }
  if (collective == "allgather") {
    using Allgather = Moving<::gloo::AllgatherOptions, ::gloo::allgather>;
    return std::make_unique<Allgather>(context, request, range);
  }
  if (collective == "alltoall") {
    using Alltoall = Moving<::gloo::AlltoallOptions, ::gloo::alltoall>;
    return std::make_unique<Alltoall>(context, request, range);
  }
  if (collective == "gather") {
    using Gather = Moving<::gloo::GatherOptions, ::gloo::gather>;
    return std::make_unique<Gather>(context, request, range);
  }
  return allreduce_part(context, request, range, bcube);
}

}  // namespace nezha::bench
