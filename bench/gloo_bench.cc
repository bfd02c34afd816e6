// gloo-bench: Gloo measured in the same way as nezha. Several devices are driven as a user of Gloo
// would drive them: by a context for each, with a part of the buffer and a thread of its own.
#include <gloo/allreduce.h>
#include <gloo/math.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/prefix_store.h>
#include <gloo/transport/tcp/device.h>

#include <algorithm>
#include <cmath>
#include <csignal>
#include <numeric>

#include "bench/benchmark_main.h"
#include "bench/interface_bytes.h"
#include "bench/repeater.h"

namespace nezha::bench {
namespace {

const Dialect kDialect = {
    "gloo-bench",
    "the speed of Gloo's collectives, measured as nezha-bench does",
    {"allreduce"},
    "tcp-device",
    "LIST",
    "network interfaces, such as eth0,eth1; each gets a slice of the buffer",
    {"ring", "bcube"},
    {"slice"},
};

using ContextPointer = std::shared_ptr<::gloo::rendezvous::Context>;
using GlooOptions = ::gloo::AllreduceOptions;

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

class GlooRunner : public Runner {
 public:
  GlooRunner(const Options& options, ::gloo::rendezvous::Store& store)
      : devices_(options.rails), shares_(options.shares), bcube_(options.algorithm == "bcube") {
    if (shares_.empty()) shares_.assign(devices_.size(), 1);
    for (size_t i = 0; i < devices_.size(); ++i) {
      ::gloo::rendezvous::PrefixStore own_store(std::to_string(i), store);
      contexts_.push_back(connect(options, devices_[i], own_store));
    }
  }

  std::unique_ptr<Operation> prepare(const std::string&, float* input, float* output,
                                     size_t elements, uint32_t tag) override {
    std::vector<GlooOptions> slices;
    const auto ends = slice_ends(elements);
    for (size_t i = 0, begin = 0; i < ends.size(); begin = ends[i++]) {
      if (begin == ends[i]) continue;
      GlooOptions slice(contexts_[i]);
      if (input != output) slice.setInput(input + begin, ends[i] - begin);
      slice.setOutput(output + begin, ends[i] - begin);
      slice.setAlgorithm(bcube_ ? GlooOptions::Algorithm::BCUBE : GlooOptions::Algorithm::RING);
      slice.setReduceFunction([](void* sum, const void* a, const void* b, size_t n) {
        ::gloo::sum<float>(sum, a, b, n);
      });
      slice.setTag(tag);
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
  std::vector<size_t> slice_ends(size_t elements) const {
    constexpr double kLine = 16;  // elements
    const double total = std::accumulate(shares_.begin(), shares_.end(), 0.0);
    std::vector<size_t> ends;
    double sum = 0;
    for (const double share : shares_) {
      sum += share;
      const double lines = std::ceil(static_cast<double>(elements) * sum / total / kLine);
      ends.push_back(std::min(elements, static_cast<size_t>(lines * kLine)));
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
