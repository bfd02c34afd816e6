// SPDX-License-Identifier: Apache-2.0
// Gloo's collectives, each carried out by nezha's of the same name. Calls that Gloo's own function
// would refuse go to that function. So do calls that nezha cannot carry out: reductions of elements
// whose size is not 1, 2, 4 or 8 bytes.
#include <gloo/allgather.h>
#include <gloo/allgatherv.h>
#include <gloo/allreduce.h>
#include <gloo/alltoall.h>
#include <gloo/alltoallv.h>
#include <gloo/barrier.h>
#include <gloo/broadcast.h>
#include <gloo/gather.h>
#include <gloo/gatherv.h>
#include <gloo/reduce.h>
#include <gloo/scatter.h>

#include <cstring>
#include <memory>
#include <numeric>
#include <vector>

#include "interop/takeover/original.h"
#include "interop/takeover/whole.h"
#include "nezha/nezha.h"

namespace {

using nezha::takeover::context_of;
using nezha::takeover::options_for;
using nezha::takeover::original;
using nezha::takeover::reduction_by;
using nezha::takeover::set_reduction;
using UnboundBuffer = ::gloo::transport::UnboundBuffer;
using Buffers = std::vector<std::unique_ptr<UnboundBuffer>>;

constexpr nezha::DataType kByte = nezha::DataType::kUint8;

// The most bytes of a rank's block that nezha scatters. Gloo's blocks may be anywhere, and nezha's
// must be contiguous, so the root copies them. For longer blocks Gloo's own algorithm over nezha's
// device, which does not copy, is as fast.
constexpr size_t kMostScattered = 16 << 10;

bool have_size(const Buffers& buffers, size_t bytes) {
  return std::all_of(buffers.begin(), buffers.end(),
                     [&](const auto& buffer) { return buffer->size == bytes; });
}

std::vector<void*> memory_of(const Buffers& buffers) {
  std::vector<void*> memory;
  for (const auto& buffer : buffers) memory.push_back(buffer->ptr);
  return memory;
}

bool is_rank(int rank, const std::shared_ptr<gloo::Context>& context) {
  return rank >= 0 && rank < context->size;
}

}  // namespace

namespace gloo {

void allreduce(const AllreduceOptions& opts) {
  const auto& given = opts.impl_;
  const auto context = context_of(given.context);
  const auto reduction = reduction_by(given.reduce, given.elementSize);
  const size_t bytes = given.elements * given.elementSize;
  const bool is_sound =
      !given.out.empty() && have_size(given.in, bytes) && have_size(given.out, bytes);
  if (context == nullptr || !reduction || !is_sound) {
    return original<void(const AllreduceOptions&)>("_ZN4gloo9allreduceERKNS_16AllreduceOptionsE")(
        opts);
  }
  auto options = options_for<nezha::AllreduceOptions>(context, given.tag, given.timeout);
  const std::vector<void*> inputs = memory_of(given.in);
  const nezha::DataType type = reduction->type;
  if (!inputs.empty()) options.setInputs(type, {inputs.begin(), inputs.end()}, given.elements);
  options.setOutputs(type, memory_of(given.out), given.elements);
  set_reduction(options, *reduction, given.reduce);
  nezha::takeover::run(given.timeout, [&] { nezha::allreduce(options); });
}

void reduce(ReduceOptions& opts) {
  const auto context = context_of(opts.context);
  const auto reduction = reduction_by(opts.reduce, opts.elementSize);
  const size_t bytes = opts.elements * opts.elementSize;
  const bool is_sound = is_rank(opts.root, opts.context) && opts.out && opts.out->size == bytes &&
                        (!opts.in || opts.in->size == bytes);
  if (context == nullptr || !reduction || !is_sound) {
    return original<void(ReduceOptions&)>("_ZN4gloo6reduceERNS_13ReduceOptionsE")(opts);
  }
  auto options = options_for<nezha::ReduceOptions>(context, opts.tag, opts.timeout);
  options.setRoot(opts.root);
  const UnboundBuffer* input = opts.in ? opts.in.get() : opts.out.get();
  const nezha::DataType type = reduction->type;
  options.setInput(type, input->ptr, opts.elements);
  if (opts.context->rank == opts.root) options.setOutput(type, opts.out->ptr, opts.elements);
  set_reduction(options, *reduction, opts.reduce);
  nezha::takeover::run(opts.timeout, [&] { nezha::reduce(options); });
}

void broadcast(BroadcastOptions& opts) {
  const auto context = context_of(opts.context);
  const bool is_root = opts.root == opts.context->rank;
  const bool is_sound = opts.elementSize > 0 && is_rank(opts.root, opts.context) && opts.out &&
                        (!opts.in || (is_root && opts.in->size == opts.out->size));
  if (context == nullptr || !is_sound) {
    return original<void(BroadcastOptions&)>("_ZN4gloo9broadcastERNS_16BroadcastOptionsE")(opts);
  }
  if (opts.in && opts.in->ptr != opts.out->ptr && opts.out->size > 0) {
    std::memcpy(opts.out->ptr, opts.in->ptr, opts.out->size);
  }
  auto options = options_for<nezha::BroadcastOptions>(context, opts.tag, opts.timeout);
  options.setRoot(opts.root);
  options.setOutput(kByte, opts.out->ptr, opts.out->size);
  nezha::takeover::run(opts.timeout, [&] { nezha::broadcast(options); });
}

void allgather(AllgatherOptions& opts) {
  const auto context = context_of(opts.context);
  const auto ranks = static_cast<size_t>(opts.context->size);
  const bool is_sound = opts.elementSize > 0 && opts.out && opts.out->size % ranks == 0 &&
                        (!opts.in || opts.in->size * ranks == opts.out->size);
  if (context == nullptr || !is_sound) {
    return original<void(AllgatherOptions&)>("_ZN4gloo9allgatherERNS_16AllgatherOptionsE")(opts);
  }
  auto options = options_for<nezha::AllgatherOptions>(context, opts.tag, opts.timeout);
  if (opts.in) options.setInput(kByte, opts.in->ptr, opts.in->size);
  options.setOutput(kByte, opts.out->ptr, opts.out->size);
  nezha::takeover::run(opts.timeout, [&] { nezha::allgather(options); });
}

void allgatherv(AllgathervOptions& opts) {
  const auto context = context_of(opts.context);
  std::vector<size_t> bytes = opts.elements;
  for (size_t& each : bytes) each *= opts.elementSize;
  const auto rank = static_cast<size_t>(opts.context->rank);
  const bool is_sound = opts.elementSize > 0 && opts.out &&
                        bytes.size() == static_cast<size_t>(opts.context->size) &&
                        std::accumulate(bytes.begin(), bytes.end(), size_t{0}) == opts.out->size &&
                        (!opts.in || opts.in->size == bytes[rank]);
  if (context == nullptr || !is_sound) {
    return original<void(AllgathervOptions&)>("_ZN4gloo10allgathervERNS_17AllgathervOptionsE")(
        opts);
  }
  auto options = options_for<nezha::AllgatherOptions>(context, opts.tag, opts.timeout);
  if (opts.in) options.setInput(kByte, opts.in->ptr, opts.in->size);
  options.setOutput(kByte, opts.out->ptr, bytes);
  nezha::takeover::run(opts.timeout, [&] { nezha::allgather(options); });
}

void alltoall(AlltoallOptions& opts) {
  const auto context = context_of(opts.context);
  const auto ranks = static_cast<size_t>(opts.context->size);
  const bool is_sound = opts.elementSize > 0 && opts.in && opts.out &&
                        opts.in->size == opts.out->size && opts.in->size % ranks == 0;
  if (context == nullptr || !is_sound) {
    return original<void(AlltoallOptions&)>("_ZN4gloo8alltoallERNS_15AlltoallOptionsE")(opts);
  }
  auto options = options_for<nezha::AlltoallOptions>(context, opts.tag, opts.timeout);
  options.setInput(kByte, opts.in->ptr, opts.in->size);
  options.setOutput(kByte, opts.out->ptr, opts.out->size);
  nezha::takeover::run(opts.timeout, [&] { nezha::alltoall(options); });
}

void alltoallv(AlltoallvOptions& opts) {
  const auto context = context_of(opts.context);
  const auto ranks = static_cast<size_t>(opts.context->size);
  const bool is_sound = opts.elementSize > 0 && opts.in && opts.out &&
                        opts.inLengthPerRank.size() == ranks &&
                        opts.outLengthPerRank.size() == ranks;
  if (context == nullptr || !is_sound) {
    return original<void(AlltoallvOptions&)>("_ZN4gloo9alltoallvERNS_16AlltoallvOptionsE")(opts);
  }
  auto options = options_for<nezha::AlltoallvOptions>(context, opts.tag, opts.timeout);
  // Gloo gives the lengths in bytes, and its blocks are contiguous, too.
  options.setInput(kByte, opts.in->ptr, opts.inLengthPerRank);
  options.setOutput(kByte, opts.out->ptr, opts.outLengthPerRank);
  nezha::takeover::run(opts.timeout, [&] { nezha::alltoallv(options); });
}

void gather(GatherOptions& opts) {
  const auto context = context_of(opts.context);
  const bool is_root = opts.root == opts.context->rank;
  const auto ranks = static_cast<size_t>(opts.context->size);
  const bool is_sound = opts.elementSize > 0 && is_rank(opts.root, opts.context) && opts.in &&
                        (!is_root || (opts.out && opts.in->size * ranks == opts.out->size));
  if (context == nullptr || !is_sound) {
    return original<void(GatherOptions&)>("_ZN4gloo6gatherERNS_13GatherOptionsE")(opts);
  }
  auto options = options_for<nezha::GatherOptions>(context, opts.tag, opts.timeout);
  options.setRoot(opts.root);
  options.setInput(kByte, opts.in->ptr, opts.in->size);
  if (is_root) options.setOutput(kByte, opts.out->ptr, opts.out->size);
  nezha::takeover::run(opts.timeout, [&] { nezha::gather(options); });
}

void gatherv(GathervOptions& opts) {
  const auto context = context_of(opts.context);
  const bool is_root = opts.root == opts.context->rank;
  std::vector<size_t> bytes = opts.elementsPerRank;
  for (size_t& each : bytes) each *= opts.elementSize;
  const auto rank = static_cast<size_t>(opts.context->rank);
  // Gloo requires that the root's input is as long as the root's count. Of other ranks' inputs it
  // sends as much as their counts say.
  const bool is_sound = opts.elementSize > 0 && is_rank(opts.root, opts.context) && opts.in &&
                        opts.out && bytes.size() == static_cast<size_t>(opts.context->size) &&
                        (is_root ? opts.in->size == bytes[rank] : opts.in->size >= bytes[rank]);
  if (context == nullptr || !is_sound) {
    return original<void(GathervOptions&)>("_ZN4gloo7gathervERNS_14GathervOptionsE")(opts);
  }
  auto options = options_for<nezha::GathervOptions>(context, opts.tag, opts.timeout);
  options.setRoot(opts.root);
  options.setInput(kByte, opts.in->ptr, bytes[rank]);
  if (is_root) options.setOutput(kByte, opts.out->ptr, bytes);
  nezha::takeover::run(opts.timeout, [&] { nezha::gatherv(options); });
}

void scatter(ScatterOptions& opts) {
  const auto context = context_of(opts.context);
  const bool is_root = opts.root == opts.context->rank;
  const auto ranks = static_cast<size_t>(opts.context->size);
  const bool is_sound =
      opts.elementSize > 0 && is_rank(opts.root, opts.context) && opts.out &&
      (!is_root || (opts.in.size() == ranks && have_size(opts.in, opts.out->size)));
  if (context == nullptr || !is_sound || opts.out->size > kMostScattered) {
    return original<void(ScatterOptions&)>("_ZN4gloo7scatterERNS_14ScatterOptionsE")(opts);
  }
  auto options = options_for<nezha::ScatterOptions>(context, opts.tag, opts.timeout);
  options.setRoot(opts.root);
  options.setOutput(kByte, opts.out->ptr, opts.out->size);
  std::vector<char> blocks;
  if (is_root) {
    blocks.reserve(ranks * opts.out->size);
    for (const auto& block : opts.in) {
      const char* begin = static_cast<const char*>(block->ptr);
      blocks.insert(blocks.end(), begin, begin + block->size);
    }
    options.setInput(kByte, blocks.data(), blocks.size());
  }
  nezha::takeover::run(opts.timeout, [&] { nezha::scatter(options); });
}

void barrier(BarrierOptions& opts) {
  const auto context = context_of(opts.context);
  if (context == nullptr) {
    return original<void(BarrierOptions&)>("_ZN4gloo7barrierERNS_14BarrierOptionsE")(opts);
  }
  const auto options = options_for<nezha::BarrierOptions>(context, opts.tag, opts.timeout);
  nezha::takeover::run(opts.timeout, [&] { nezha::barrier(options); });
}

}  // namespace gloo
