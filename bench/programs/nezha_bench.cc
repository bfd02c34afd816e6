// SPDX-License-Identifier: Apache-2.0
// nezha-bench: measures the speed of nezha's collectives.
#include <algorithm>
#include <chrono>
#include <stdexcept>
#include <utility>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "bench/measurement/benchmark_main.h"
#include "bench/measurement/element_type.h"
#include "bench/measurement/gather.h"
#include "bench/measurement/shape.h"
#include "bench/programs/list_rails.h"
#include "nezha/allgather.h"
#include "nezha/allreduce.h"
#include "nezha/alltoall.h"
#include "nezha/barrier.h"
#include "nezha/broadcast.h"
#include "nezha/context.h"
#include "nezha/environment.h"
#include "nezha/gather.h"
#include "nezha/handle.h"
#include "nezha/reduce.h"
#include "nezha/reduce_scatter.h"
#include "nezha/scatter.h"
#include "nezha/send_recv.h"

namespace nezha::bench {
namespace {

const Dialect kDialect = {
    "nezha-bench",
    "the speed of nezha's collectives, and of send and recv",
    {"allreduce", "reduce", "broadcast", "barrier", "allgather", "reduce_scatter", "alltoall",
     "gather", "scatter", "send_recv", "ping_pong"},
    type_names(),
    operation_names(),
    "rails",
    "LIST",
    "this rank's rails, such as tcp:eth0,tcp:eth1, or auto, which finds them (auto,!eth0,!ib*"
    " leaves some out); with --plan slice the same on all ranks (default: auto)",
    {"auto", "ring", "recursive-doubling", "halving-doubling", "direct", "bcube", "bruck",
     "pairwise", "tree"},
    {"auto", "stripe", "slice"},
    {"auto", "recursive-doubling", "halving-doubling", "direct"},
    {"model", "paper", "none", "shuffle"},
    &list_rails,
    /*replays=*/true,
    environmentHelp(),
};

Algorithm algorithm_of(const Options& options) {
  if (options.algorithm == "ring") return Algorithm::kRing;
  if (options.algorithm == "recursive-doubling") return Algorithm::kRecursiveDoubling;
  if (options.algorithm == "halving-doubling") return Algorithm::kHalvingDoubling;
  if (options.algorithm == "direct") return Algorithm::kDirect;
  if (options.algorithm == "bcube") return Algorithm::kBcube;
  if (options.algorithm == "bruck") return Algorithm::kBruck;
  if (options.algorithm == "pairwise") return Algorithm::kPairwise;
  if (options.algorithm == "tree") return Algorithm::kTree;
  return Algorithm::kAuto;
}

Plan plan_of(const Options& options) {
  if (options.plan == "slice") return Plan::kSlice;
  return options.plan == "stripe" ? Plan::kStripe : Plan::kAuto;
}

BalancePolicy policy_of(const Options& options) {
  if (options.policy == "paper") return BalancePolicy::kPaper;
  if (options.policy == "shuffle") return BalancePolicy::kShuffle;
  return options.policy == "none" ? BalancePolicy::kNone : BalancePolicy::kModel;
}

template <typename CollectiveOptions, void (*kCollective)(const CollectiveOptions&)>
class Repeated : public Operation {
 public:
  explicit Repeated(CollectiveOptions options) : options_(std::move(options)) {}
  void run() override { kCollective(options_); }

 private:
  const CollectiveOptions options_;
};

// Every rank sends to the next one, and receives from the one before, as in nccl-tests.
class Shift : public Operation {
 public:
  Shift(const std::shared_ptr<Context>& context, const Request& request)
      : send_(context), receive_(context) {
    const int rank = context->rank();
    const int size = context->size();
    send_.setDestination((rank + 1) % size);
    send_.setInput(request.type, request.input, request.elements);
    send_.setTag(request.tag);
    receive_.setSource((rank + size - 1) % size);
    receive_.setOutput(request.type, request.output, request.elements);
    receive_.setTag(request.tag);
  }
  void run() override {
    Handle received = recvAsync(receive_);
    send(send_);
    received.wait();
  }

 protected:
  SendOptions send_;
  RecvOptions receive_;
};

// Rank 0 sends to the next rank, and each other rank sends when it has received, so one message is
// under way at a time.
class PingPong : public Shift {
 public:
  PingPong(const std::shared_ptr<Context>& context, const Request& request)
      : Shift(context, request), is_first_(context->rank() == 0) {}
  void run() override {
    if (is_first_) send(send_);
    recv(receive_);
    if (!is_first_) send(send_);
  }

 private:
  const bool is_first_;
};

// `set_more` sets the options that only this collective has.
template <typename CollectiveOptions, void (*kCollective)(const CollectiveOptions&), typename F>
std::unique_ptr<Operation> repeated(CollectiveOptions options, const F& set_more) {
  set_more(options);
  return std::make_unique<Repeated<CollectiveOptions, kCollective>>(std::move(options));
}

// Sets the vectors of a collective whose vector is made of blocks. In place the shorter vector lies
// in the longer one.
template <typename CollectiveOptions>
void set_blocks(CollectiveOptions& options, const Request& request, const Shape& shape) {
  if (shape.input > 0) options.setInput(request.type, request.input, shape.input);
  if (shape.output > 0) options.setOutput(request.type, request.output, shape.output);
  options.setTag(request.tag);
}

template <typename CollectiveOptions>
void set_vectors(CollectiveOptions& options, const Request& request) {
  with_type(request.type, [&](auto tag) {
    using T = typename decltype(tag)::Type;
    options.setInput(static_cast<const T*>(request.input), request.elements);
    options.setOutput(static_cast<T*>(request.output), request.elements);
  });
  options.setTag(request.tag);
}

class AsyncAllreduce : public AsyncOperation {
 public:
  explicit AsyncAllreduce(AllreduceOptions options) : options_(std::move(options)) {}
  void start() override { handle_ = allreduceAsync(options_); }
  void wait() override { handle_.wait(); }

 private:
  const AllreduceOptions options_;
  Handle handle_;  // cancels the operation
};

class NezhaRunner : public Runner {
 public:
  NezhaRunner(std::shared_ptr<Context> context, const Options& options)
      : context_(std::move(context)),
        algorithm_(algorithm_of(options)),
        reproducible_(options.reproducible),
        measures_allreduce_(options.collective == "allreduce") {}

  std::unique_ptr<Operation> prepare(const Request& request) override {
    if (request.collective == "barrier") {
      BarrierOptions options(context_);
      options.setTag(request.tag);
      return std::make_unique<Repeated<BarrierOptions, barrier>>(options);
    }
    if (request.collective == "reduce") {
      ReduceOptions options(context_);
      set_vectors(options, request);
      options.setOperation(request.operation);
      options.setRoot(0);
      return std::make_unique<Repeated<ReduceOptions, reduce>>(options);
    }
    if (request.collective == "broadcast") {
      BroadcastOptions options(context_);
      set_vectors(options, request);
      options.setRoot(0);
      return std::make_unique<Repeated<BroadcastOptions, broadcast>>(options);
    }
    if (request.collective == "ping_pong") return std::make_unique<PingPong>(context_, request);
    if (kind_of(request.collective).is_shift) return std::make_unique<Shift>(context_, request);
    if (kind_of(request.collective).has_blocks()) return prepare_blocks(request);
    AllreduceOptions options(context_);
    set_vectors(options, request);
    options.setOperation(request.operation);
    // Otherwise this is one of the benchmark's own allreduces.
    if (measures_allreduce_) set_algorithm(options);
    return std::make_unique<Repeated<AllreduceOptions, allreduce>>(options);
  }

  std::unique_ptr<AsyncOperation> prepare_async(const Request& request) override {
    AllreduceOptions options(context_);
    set_vectors(options, request);
    options.setOperation(request.operation);
    set_algorithm(options);
    return std::make_unique<AsyncAllreduce>(options);
  }

  std::unique_ptr<Operation> prepare_blocks(const Request& request) const {
    const Shape shape =
        shape_of(request.collective, context_->rank(), context_->size(), request.elements);
    const auto set = [&](auto& options) {
      set_blocks(options, request, shape);
      options.setAlgorithm(algorithm_);
    };
    const auto set_rooted = [&](auto& options) {
      set(options);
      options.setRoot(0);
    };
    const auto set_reducing = [&](auto& options) {
      set(options);
      options.setOperation(request.operation);
      options.setReproducible(reproducible_);
    };
    if (request.collective == "allgather") {
      return repeated<AllgatherOptions, allgather>(AllgatherOptions(context_), set);
    }
    if (request.collective == "reduce_scatter") {
      return repeated<ReduceScatterOptions, reduceScatter>(ReduceScatterOptions(context_),
                                                           set_reducing);
    }
    if (request.collective == "alltoall") {
      return repeated<AlltoallOptions, alltoall>(AlltoallOptions(context_), set);
    }
    if (request.collective == "gather") {
      return repeated<GatherOptions, nezha::gather>(GatherOptions(context_), set_rooted);
    }
    return repeated<ScatterOptions, scatter>(ScatterOptions(context_), set_rooted);
  }

  std::vector<RailBytes> bytes_sent() const override {
    std::vector<RailBytes> rails;
    for (const auto& rail : context_->rails()) {
      rails.push_back({rail.name, static_cast<double>(rail.bytes_sent)});
    }
    return rails;
  }

  std::string learned(size_t bytes) const override {
    const BalanceStats balance = context_->balance();
    for (const SizeClassStats& known : balance.classes) {
      if (bytes < known.least_bytes || bytes >= 2 * known.least_bytes) continue;
      std::string text = known.state;
      if (known.is_trying) text += " (trying)";
      for (size_t lane = 0; lane < known.shares.size(); ++lane) {
        if (known.shares[lane] == 0) continue;
        absl::StrAppendFormat(&text, " %s %.1f%%", balance.lanes[lane], 100 * known.shares[lane]);
      }
      if (!known.algorithm.empty()) absl::StrAppendFormat(&text, " %s", known.algorithm);
      return text;
    }
    return "";
  }

  std::vector<RailStats> rails() const override { return context_->rails(); }
  BalanceStats balance() const override { return context_->balance(); }

 private:
  void set_algorithm(AllreduceOptions& options) const {
    options.setAlgorithm(algorithm_);
    options.setReproducible(reproducible_);
  }

  const std::shared_ptr<Context> context_;
  const Algorithm algorithm_;
  const bool reproducible_;
  const bool measures_allreduce_;
};

double sent_by_switch(const Runner& runner) {
  for (const auto& rail : runner.bytes_sent()) {
    if (rail.name == "flare") return rail.bytes;
  }
  return 0;
}

// Waits for the switch. Without this the hosts would be measured, which go on without a switch
// until there is a session.
void await_switch(Runner& runner, const Options& options) {
  const auto deadline = std::chrono::steady_clock::now() + options.timeout;
  for (bool is_there = false; !is_there;) {
    const double is_late = std::chrono::steady_clock::now() > deadline ? 1 : 0;
    const auto ranks = gather(runner, options, {sent_by_switch(runner), is_late});
    is_there =
        std::all_of(ranks.begin(), ranks.end(), [](const auto& rank) { return rank[0] > 0; });
    if (is_there || ranks[0][1] == 0) continue;  // rank 0's clock counts, as all must end at once
    throw std::runtime_error(
        "--await-switch: no switch has carried anything by the deadline of --timeout; the log of "
        "rank 0 says why");
  }
}

void tell_what_auto_took(const Context& context) {
  std::vector<std::string> names;
  for (const auto& rail : context.rails()) names.push_back(rail.name);
  absl::FPrintF(stderr,
                "nezha-bench: without --rails nezha has found these: %s (--list-rails says more)\n",
                absl::StrJoin(names, ", "));
}

std::unique_ptr<Runner> connect(const Options& options, Meeting& meeting) {
  ContextOptions wanted;
  wanted.rank = options.rank;
  wanted.size = options.size;
  wanted.rails = options.rails;
  wanted.ports = options.ports;
  wanted.timeout = options.timeout;
  wanted.plan = plan_of(options);
  wanted.shares = options.shares;
  wanted.policy = policy_of(options);
  wanted.table = options.table;
  auto context = Context::create(meeting.store(), wanted);
  if (options.rails.empty() && options.rank == 0) tell_what_auto_took(*context);
  if (wanted.plan == Plan::kSlice) {  // slices go by a rail's place in the list
    std::vector<std::string> names;
    for (const auto& rail : context->rails()) names.push_back(rail.name);
    meeting.agree("slices", {{"with --plan slice, the order of the rails",  //
                              absl::StrJoin(names, ",")}});
  }
  auto runner = std::make_unique<NezhaRunner>(std::move(context), options);
  if (options.await_switch) await_switch(*runner, options);
  return runner;
}

}  // namespace
}  // namespace nezha::bench

int main(int argc, char** argv) {
  return nezha::bench::benchmark_main(argc, argv, nezha::bench::kDialect, nezha::bench::connect);
}
