// SPDX-License-Identifier: Apache-2.0
// gloo-bench: measures Gloo in the same way as nezha. It drives several devices as a user of Gloo
// would: each by a context with a part of the vector, or of each of its blocks, and a thread of its
// own. A barrier, which has nothing to divide, goes by the first. In a replay each operation goes
// by one context, and the contexts take turns.
//
// A preloaded library, such as libnezha_gloo.so, may replace each of Gloo's devices by one of its
// own. If that device drives all networks, one context is enough.
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/prefix_store.h>
#include <gloo/transport/tcp/device.h>

#include <algorithm>
#include <cmath>
#include <csignal>
#include <future>
#include <numeric>

#include "absl/strings/str_join.h"
#include "bench/measurement/benchmark_main.h"
#include "bench/measurement/interface_bytes.h"
#include "bench/measurement/shape.h"
#include "bench/programs/gloo_part.h"
#include "bench/programs/repeater.h"
#include "bench/programs/workers.h"

namespace nezha::bench {
namespace {

const Dialect kDialect = {
    "gloo-bench",
    "the speed of Gloo's collectives, measured as nezha-bench does",
    {"allreduce", "reduce", "broadcast", "barrier", "allgather", "reduce_scatter", "alltoall",
     "gather", "scatter"},
    {"float32", "uint8", "int8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "float16",
     "float64"},
    {"sum", "product", "min", "max"},
    "tcp-device",
    "LIST",
    "network interfaces, such as eth0,eth1; each gets a part of the vector, or of each of its"
    " blocks",
    {"ring", "bcube"},
    {"slice"},
    {},
    {},
    nullptr,
    /*replays=*/true,
};

using DevicePointer = std::shared_ptr<::gloo::transport::Device>;
using ContextPointer = std::shared_ptr<::gloo::rendezvous::Context>;

// Runs all parts of an operation at the same time, the first in the calling thread.
class Parts : public Operation {
 public:
  explicit Parts(std::vector<std::unique_ptr<Operation>> parts) : parts_(std::move(parts)) {
    for (size_t i = 1; i < parts_.size(); ++i) {
      others_.push_back(std::make_unique<Repeater>([this, i] { parts_[i]->run(); }));
    }
  }

  void run() override {
    for (auto& other : others_) other->start();
    parts_[0]->run();
    for (auto& other : others_) other->wait();
  }

 private:
  const std::vector<std::unique_ptr<Operation>> parts_;
  std::vector<std::unique_ptr<Repeater>> others_;
};

// An operation that each of the contexts can run; each start uses the next one.
class InTurn : public AsyncOperation {
 public:
  // `turn` is common to all operations.
  InTurn(std::vector<std::unique_ptr<Operation>> operations, Workers& workers, size_t& turn)
      : operations_(std::move(operations)), workers_(workers), turn_(turn) {}
  InTurn(const InTurn&) = delete;
  InTurn& operator=(const InTurn&) = delete;
  ~InTurn() override {
    if (running_.valid()) running_.wait();
  }

  void start() override {
    Operation& next = *operations_[turn_++ % operations_.size()];
    running_ = workers_.run([&next] { next.run(); });
  }
  void wait() override { running_.get(); }

 private:
  const std::vector<std::unique_ptr<Operation>> operations_;
  Workers& workers_;
  size_t& turn_;
  std::future<void> running_;
};

class GlooRunner : public Runner {
 public:
  GlooRunner(const Options& options, ::gloo::rendezvous::Store& store)
      : interfaces_(options.rails), shares_(options.shares), bcube_(options.algorithm == "bcube") {
    if (options.in_place && kind_of(options.collective).has_blocks()) {
      throw std::runtime_error("--in-place: Gloo has it for allreduce, reduce and broadcast only");
    }
    if (bcube_ && options.collective != "allreduce") {
      throw std::runtime_error("--algorithm: Gloo has bcube for allreduce only");
    }
    const std::vector<DevicePointer> devices = make_devices();
    if (!shares_.empty() && devices.size() < interfaces_.size()) {
      throw std::runtime_error(
          "--share is not possible, because one device drives all interfaces: " + device_);
    }
    if (shares_.empty()) shares_.assign(devices.size(), 1);
    for (size_t i = 0; i < devices.size(); ++i) {
      ::gloo::rendezvous::PrefixStore own_store(std::to_string(i), store);
      contexts_.push_back(connect(options, devices[i], own_store));
    }
  }

  std::unique_ptr<Operation> prepare(const Request& request) override {
    std::vector<std::unique_ptr<Operation>> parts;
    const auto ends = part_ends(request.elements, sizeOf(request.type));
    for (size_t i = 0, begin = 0; i < ends.size(); begin = ends[i++]) {
      if (begin == ends[i] && (i > 0 || request.elements > 0)) continue;
      parts.push_back(gloo_part(contexts_[i], request, {begin, ends[i]}, bcube_));
    }
    return std::make_unique<Parts>(std::move(parts));
  }

  // This works as PyTorch's backend `gloo`: the contexts take turns, and there are two threads for
  // each.
  std::unique_ptr<AsyncOperation> prepare_async(const Request& request) override {
    if (!workers_) workers_ = std::make_unique<Workers>(2 * contexts_.size());
    std::vector<std::unique_ptr<Operation>> operations;
    for (const auto& context : contexts_) {
      operations.push_back(gloo_part(context, request, {0, request.elements}, bcube_));
    }
    return std::make_unique<InTurn>(std::move(operations), *workers_, turn_);
  }

  std::vector<RailBytes> bytes_sent() const override { return interface_bytes_sent(interfaces_); }

  std::string device() const override { return device_; }

 private:
  // Makes one device for each interface, but only one if all describe themselves alike: each would
  // drive the same networks.
  std::vector<DevicePointer> make_devices() {
    std::vector<DevicePointer> devices;
    std::vector<std::string> names;
    for (const std::string& interface : interfaces_) {
      ::gloo::transport::tcp::attr attributes;
      attributes.iface = interface;
      auto device = ::gloo::transport::tcp::CreateDevice(attributes);
      if (std::find(names.begin(), names.end(), device->str()) != names.end()) continue;
      names.push_back(device->str());
      devices.push_back(std::move(device));
    }
    device_ = absl::StrJoin(names, "; ");
    return devices;
  }

  static ContextPointer connect(const Options& options, const DevicePointer& device,
                                ::gloo::rendezvous::Store& store) {
    auto context = std::make_shared<::gloo::rendezvous::Context>(options.rank, options.size);
    context->setTimeout(options.timeout);
    auto connected = device;  // Gloo takes a reference
    context->connectFullMesh(store, connected);
    return context;
  }

  // Returns where each device's part ends: on a cache line, rounded up, so that the first device
  // alone carries a short message.
  std::vector<size_t> part_ends(size_t elements, size_t element_size) const {
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

  const std::vector<std::string> interfaces_;
  std::vector<double> shares_;
  const bool bcube_;
  std::string device_;
  std::vector<ContextPointer> contexts_;
  size_t turn_ = 0;
  std::unique_ptr<Workers> workers_;  // the workers of operations in the background
};

std::unique_ptr<Runner> connect(const Options& options, Meeting& meeting) {
  return std::make_unique<GlooRunner>(options, *meeting.store());
}

}  // namespace
}  // namespace nezha::bench

int main(int argc, char** argv) {
  // Gloo writes to sockets of ranks that may have died; its exception tells more than the signal.
  std::signal(SIGPIPE, SIG_IGN);
  return nezha::bench::benchmark_main(argc, argv, nezha::bench::kDialect, nezha::bench::connect);
}
