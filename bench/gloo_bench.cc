// SPDX-License-Identifier: Apache-2.0
// gloo-bench: Gloo measured in the same way as nezha. Several devices are driven as a user of Gloo
// would drive them: by a context for each, with a part of the buffer and a thread of its own. Only
// an allreduce's buffer can be divided so.
#include <gloo/allgather.h>
#include <gloo/allreduce.h>
#include <gloo/alltoall.h>
#include <gloo/gather.h>
#include <gloo/math.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/prefix_store.h>
#include <gloo/scatter.h>
#include <gloo/transport/tcp/device.h>
#include <gloo/types.h>

#include <algorithm>
#include <cmath>
#include <csignal>
#include <numeric>
#include <type_traits>

#include "bench/benchmark_main.h"
#include "bench/element_type.h"
#include "bench/interface_bytes.h"
#include "bench/repeater.h"
#include "bench/shape.h"

namespace nezha::bench {
namespace {

const Dialect kDialect = {
    "gloo-bench",
    "the speed of Gloo's collectives, measured as nezha-bench does",
    {"allreduce", "allgather", "alltoall", "gather", "scatter"},
    {"float32", "uint8", "int8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "float16",
     "float64"},
    {"sum", "product", "min", "max"},
    "tcp-device",
    "LIST",
    "network interfaces, such as eth0,eth1; each gets a slice of the buffer",
    {"ring", "bcube"},
    {"slice"},
};

// As Gloo knows the type. There is none of its own for bfloat16, which kDialect leaves out.
template <typename T>
using GlooType = std::conditional_t<std::is_same_v<T, Float16>, ::gloo::float16, T>;

using Function = void (*)(void* result, const void* a, const void* b, size_t elements);

Function function_of(DataType type, ReduceOperation operation) {
  return with_type(type, [operation](auto tag) -> Function {
    using T = GlooType<typename decltype(tag)::Type>;
    if constexpr (std::is_same_v<T, BFloat16>) {
      return nullptr;
    } else {
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
    }
  });
}

using ContextPointer = std::shared_ptr<::gloo::rendezvous::Context>;
using GlooOptions = ::gloo::AllreduceOptions;

void set_vectors(GlooOptions& slice, const Request& request, size_t begin, size_t end) {
  with_type(request.type, [&](auto tag) {
    using T = GlooType<typename decltype(tag)::Type>;
    T* const input = static_cast<T*>(request.input);
    T* const output = static_cast<T*>(request.output);
    if (input != output) slice.setInput(input + begin, end - begin);
    slice.setOutput(output + begin, end - begin);
  });
}

// One allreduce per slice, all at the same time: the first in the calling thread.
class Allreduce : public Operation {
 public:
  explicit Allreduce(std::vector<GlooOptions> slices) : slices_(std::move(slices)) {
    for (size_t i = 1; i < slices_.size(); ++i) {
      others_.push_back(std::make_unique<Repeater>([this, i] { ::gloo::allreduce(slices_[i]); }));
    }
  }

  void run() override {
    for (auto& other : others_) other->start();
    ::gloo::allreduce(slices_[0]);
    for (auto& other : others_) other->wait();
  }

 private:
  const std::vector<GlooOptions> slices_;
  std::vector<std::unique_ptr<Repeater>> others_;
};

// A collective whose vector is made of a block for each rank.
template <typename GlooBlocks, void (*kCollective)(GlooBlocks&)>
class Blocks : public Operation {
 public:
  explicit Blocks(GlooBlocks options) : options_(std::move(options)) {}
  void run() override { kCollective(options_); }

 private:
  GlooBlocks options_;
};

// Gloo copies bytes, whatever they are of.
template <typename GlooBlocks, void (*kCollective)(GlooBlocks&)>
std::unique_ptr<Operation> moving(const ContextPointer& context, const Request& request) {
  const Shape shape = shape_of(request.collective, context->rank, context->size, request.elements);
  const size_t size = sizeOf(request.type);
  auto* const input = static_cast<std::byte*>(request.input);
  GlooBlocks options(context);
  if constexpr (std::is_same_v<GlooBlocks, ::gloo::ScatterOptions>) {
    std::vector<std::byte*> blocks;
    for (int rank = 0; shape.input > 0 && rank < context->size; ++rank) {
      blocks.push_back(input + static_cast<size_t>(rank) * request.elements * size);
    }
    if (!blocks.empty()) options.setInputs(blocks, request.elements * size);
  } else {
    options.setInput(input, shape.input * size);
  }
  if (shape.output > 0) {
    options.setOutput(static_cast<std::byte*>(request.output), shape.output * size);
  }
  if constexpr (!std::is_same_v<GlooBlocks, ::gloo::AllgatherOptions> &&
                !std::is_same_v<GlooBlocks, ::gloo::AlltoallOptions>) {
    options.setRoot(0);
  }
  options.setTag(request.tag);
  return std::make_unique<Blocks<GlooBlocks, kCollective>>(std::move(options));
}

std::unique_ptr<Operation> prepare_blocks(const ContextPointer& context, const Request& request) {
  if (request.collective == "allgather") {
    return moving<::gloo::AllgatherOptions, ::gloo::allgather>(context, request);
  }
  if (request.collective == "alltoall") {
    return moving<::gloo::AlltoallOptions, ::gloo::alltoall>(context, request);
  }
  if (request.collective == "gather") {
    return moving<::gloo::GatherOptions, ::gloo::gather>(context, request);
  }
  return moving<::gloo::ScatterOptions, ::gloo::scatter>(context, request);
}

class GlooRunner : public Runner {
 public:
  GlooRunner(const Options& options, ::gloo::rendezvous::Store& store)
      : devices_(options.rails), shares_(options.shares), bcube_(options.algorithm == "bcube") {
    if (kind_of(options.collective).has_blocks()) {
      if (devices_.size() > 1) {
        throw std::runtime_error("--tcp-device: only an allreduce is divided over several devices");
      }
      if (options.in_place) throw std::runtime_error("--in-place: Gloo has it for allreduce only");
    }
    if (shares_.empty()) shares_.assign(devices_.size(), 1);
    for (size_t i = 0; i < devices_.size(); ++i) {
      ::gloo::rendezvous::PrefixStore own_store(std::to_string(i), store);
      contexts_.push_back(connect(options, devices_[i], own_store));
    }
  }

  std::unique_ptr<Operation> prepare(const Request& request) override {
    if (kind_of(request.collective).has_blocks()) return prepare_blocks(contexts_[0], request);
    std::vector<GlooOptions> slices;
    const auto ends = slice_ends(request.elements, sizeOf(request.type));
    for (size_t i = 0, begin = 0; i < ends.size(); begin = ends[i++]) {
      if (begin == ends[i]) continue;
      GlooOptions slice(contexts_[i]);
      set_vectors(slice, request, begin, ends[i]);
      slice.setAlgorithm(bcube_ ? GlooOptions::Algorithm::BCUBE : GlooOptions::Algorithm::RING);
      slice.setReduceFunction(function_of(request.type, request.operation));
      slice.setTag(request.tag);
      slices.push_back(std::move(slice));
    }
    return std::make_unique<Allreduce>(std::move(slices));
  }

  std::vector<RailBytes> bytes_sent() const override { return interface_bytes_sent(devices_); }

 private:
  static ContextPointer connect(const Options& options, const std::string& device_name,
                                ::gloo::rendezvous::Store& store) {
    ::gloo::transport::tcp::attr attributes;
    attributes.iface = device_name;
    auto device = ::gloo::transport::tcp::CreateDevice(attributes);
    auto context = std::make_shared<::gloo::rendezvous::Context>(options.rank, options.size);
    context->setTimeout(options.timeout);
    context->connectFullMesh(store, device);
    return context;
  }

  // Where each device's slice ends: on a cache line, rounded up, so that a short message is the
  // first device's alone.
  std::vector<size_t> slice_ends(size_t elements, size_t element_size) const {
    const double line = 64.0 / static_cast<double>(element_size);  // elements
    const double total = std::accumulate(shares_.begin(), shares_.end(), 0.0);
    std::vector<size_t> ends;
    double sum = 0;
    for (const double share : shares_) {
      sum += share;
      const double lines = std::ceil(static_cast<double>(elements) * sum / total / line);
      ends.push_back(std::min(elements, static_cast<size_t>(lines * line)));
    }
    ends.back() = elements;
    return ends;
  }

  const std::vector<std::string> devices_;
  std::vector<double> shares_;
  const bool bcube_;
  std::vector<ContextPointer> contexts_;
};

std::unique_ptr<Runner> connect(const Options& options, Meeting& meeting) {
  return std::make_unique<GlooRunner>(options, *meeting.store());
}

}  // namespace
}  // namespace nezha::bench

int main(int argc, char** argv) {
  // Gloo writes to sockets of ranks that may have died; its exception tells more than the signal
  std::signal(SIGPIPE, SIG_IGN);
  return nezha::bench::benchmark_main(argc, argv, nezha::bench::kDialect, nezha::bench::connect);
}
