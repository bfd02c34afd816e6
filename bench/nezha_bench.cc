// nezha-bench: the speed of nezha's collectives.
#include "bench/benchmark_main.h"
#include "nezha/allreduce.h"
#include "nezha/context.h"

namespace nezha::bench {
namespace {

const Dialect kDialect = {
    "nezha-bench",
    "the speed of nezha's collectives",
    "rails",
    "LIST",
    "the rails, such as tcp:eth0,tcp:eth1, in the same order on all ranks",
    {"auto", "ring", "recursive-doubling", "halving-doubling", "direct", "bcube"},
    {"stripe", "slice"},
};

Algorithm algorithm_of(const Options& options) {
  if (options.algorithm == "ring") return Algorithm::kRing;
  if (options.algorithm == "recursive-doubling") return Algorithm::kRecursiveDoubling;
  if (options.algorithm == "halving-doubling") return Algorithm::kHalvingDoubling;
  if (options.algorithm == "direct") return Algorithm::kDirect;
  if (options.algorithm == "bcube") return Algorithm::kBcube;
  return Algorithm::kAuto;
}

class Allreduce : public Operation {
 public:
  explicit Allreduce(AllreduceOptions options) : options_(std::move(options)) {}
  void run() override { allreduce(options_); }

 private:
  const AllreduceOptions options_;
};

class NezhaRunner : public Runner {
 public:
  NezhaRunner(std::shared_ptr<Context> context, Algorithm algorithm)
      : context_(std::move(context)), algorithm_(algorithm) {}

  std::unique_ptr<Operation> prepare_allreduce(float* input, float* output, size_t elements,
                                               uint32_t tag) override {
    AllreduceOptions options(context_);
    options.setInput(input, elements);
    options.setOutput(output, elements);
    options.setAlgorithm(algorithm_);
    options.setTag(tag);
    return std::make_unique<Allreduce>(options);
  }

  std::vector<RailBytes> bytes_sent() const override {
    std::vector<RailBytes> rails;
    for (const auto& rail : context_->rails()) {
      rails.push_back({rail.name, static_cast<double>(rail.bytes_sent)});
    }
    return rails;
  }

 private:
  const std::shared_ptr<Context> context_;
  const Algorithm algorithm_;
};

std::unique_ptr<Runner> connect(const Options& options,
                                const std::shared_ptr<::gloo::rendezvous::Store>& store) {
  ContextOptions context;
  context.rank = options.rank;
  context.size = options.size;
  context.rails = options.rails;
  context.timeout = options.timeout;
  context.plan = options.plan == "slice" ? Plan::kSlice : Plan::kStripe;
  context.shares = options.shares;
  return std::make_unique<NezhaRunner>(Context::create(store, context), algorithm_of(options));
}

}  // namespace
}  // namespace nezha::bench

int main(int argc, char** argv) {
  return nezha::bench::benchmark_main(argc, argv, nezha::bench::kDialect, nezha::bench::connect);
}
