// nezha-bench: the speed of nezha's collectives.
#include "absl/strings/str_join.h"
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
    "this rank's rails, such as tcp:eth0,tcp:eth1; with --plan slice the same on all ranks",
    {"auto", "ring", "recursive-doubling", "halving-doubling", "direct", "bcube"},
    {"stripe", "slice"},
    /*has_reproducible=*/true,
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
  NezhaRunner(std::shared_ptr<Context> context, const Options& options)
      : context_(std::move(context)),
        algorithm_(algorithm_of(options)),
        reproducible_(options.reproducible) {}

  std::unique_ptr<Operation> prepare_allreduce(float* input, float* output, size_t elements,
                                               uint32_t tag) override {
    AllreduceOptions options(context_);
    options.setInput(input, elements);
    options.setOutput(output, elements);
    options.setAlgorithm(algorithm_);
    options.setReproducible(reproducible_);
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
  const bool reproducible_;
};

std::unique_ptr<Runner> connect(const Options& options, Meeting& meeting) {
  ContextOptions wanted;
  wanted.rank = options.rank;
  wanted.size = options.size;
  wanted.rails = options.rails;
  wanted.timeout = options.timeout;
  wanted.plan = options.plan == "slice" ? Plan::kSlice : Plan::kStripe;
  wanted.shares = options.shares;
  auto context = Context::create(meeting.store(), wanted);
  if (wanted.plan == Plan::kSlice) {  // slices go by a rail's place in the list
    std::vector<std::string> names;
    for (const auto& rail : context->rails()) names.push_back(rail.name);
    meeting.agree("slices", {{"with --plan slice, the order of the rails",  //
                              absl::StrJoin(names, ",")}});
  }
  return std::make_unique<NezhaRunner>(std::move(context), options);
}

}  // namespace
}  // namespace nezha::bench

int main(int argc, char** argv) {
  return nezha::bench::benchmark_main(argc, argv, nezha::bench::kDialect, nezha::bench::connect);
}
