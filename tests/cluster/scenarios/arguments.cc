// SPDX-License-Identifier: Apache-2.0
// What calls refuse, and that the context still works afterwards.

#include <sys/mman.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <functional>
#include <string>

#include "cluster/scenarios/scenario.h"
#include "nezha/allreduce.h"
#include "nezha/barrier.h"
#include "nezha/broadcast.h"
#include "nezha/context.h"
#include "nezha/errors.h"
#include "nezha/reduce.h"

namespace nezha::scenarios {
namespace {

void bad_arguments(World& world) {
  const auto context = world.join();
  Vector vector(world, 100, 1);
  float* data = vector.values.data();
  using Options = nezha::AllreduceOptions;
  const auto refused = [&](const std::string& what, const std::function<void(Options&)>& set) {
    Options options(context);
    set(options);
    check_mentions(thrown<nezha::InvalidArgument>([&] { nezha::allreduce(options); }), what);
    check_mentions(
        thrown<nezha::InvalidArgument>([&] { const auto handle = nezha::allreduceAsync(options); }),
        what);
  };
  refused("there is no output", [&](Options&) {});
  refused("null pointer", [&](Options& o) { o.setOutput<float>(nullptr, 10); });
  refused("input 1", [&](Options& o) {
    o.setInputs<float>({data, nullptr}, 10);
    o.setOutput(data, 10);
  });
  refused("overlap", [&](Options& o) {
    o.setInput(data, 10);
    o.setOutput(data + 5, 10);
  });
  refused("outputs 0 and 1 overlap", [&](Options& o) { o.setOutputs<float>({data, data}, 10); });
  refused("elements", [&](Options& o) {
    o.setInput(data, 10);
    o.setOutput(data + 20, 11);
  });
  refused("reserved for nezha", [&](Options& o) {
    o.setOutput(data, 10);
    o.setTag(0xffffffff);
  });
  refused("more than memory has", [&](Options& o) { o.setOutput(data, size_t{1} << 62); });
  refused("recursive-doubling, halving-doubling or direct", [&](Options& o) {
    o.setOutput(data, 10);
    o.setAlgorithm(nezha::Algorithm::kRing);
    o.setReproducible(true);
  });
  refused("not commutative", [&](Options& o) {
    o.setOutput(data, 10);
    o.setAlgorithm(nezha::Algorithm::kBcube);
    o.setCommutative(false);
  });
  // The context still works.
  vector.start(context, 1).wait();
  vector.check_sum();
}

void bad_contexts(World& world) {
  const auto refused = [&](const std::string& what, const std::function<void()>& call) {
    check_mentions(thrown<nezha::InvalidArgument>(call), what);
  };
  refused("no store", [] { nezha::Context::create(nullptr, {}); });
  nezha::AllreduceOptions nowhere(nullptr);
  refused("have no context", [&] { nezha::allreduce(nowhere); });
  refused("have no context", [&] { const auto handle = nezha::allreduceAsync(nowhere); });

  const auto context = world.join();
  Vector vector(world, 100, 1);
  for (const int ms : {0, -1}) {
    refused("the timeout is " + std::to_string(ms) + " ms",
            [&] { nezha::allreduce(vector.options(context, 1, milliseconds(ms))); });
  }
  check(vector.is_untouched(), "the memory was written to");
  vector.start(context, 1, milliseconds::max()).wait();
  vector.check_sum();
}

void checked_pointers(World& world) {
  check(setenv("NEZHA_CHECK_POINTERS", "1", 1) == 0, "no environment");
  const Context context = world.join();
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  const size_t elements = 3 * page / sizeof(float);
  void* mapped =
      mmap(nullptr, 3 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  check(mapped != MAP_FAILED, "no memory");
  auto* pages = static_cast<float*>(mapped);
  Vector vector(world, elements, 1);
  const auto protect = [&](int protection) {
    check(mprotect(pages + elements / 3, page, protection) == 0, "mprotect");
  };
  const auto refused = [&](const std::string& what, bool as_output) {
    nezha::AllreduceOptions options = vector.options(context, 1);
    if (as_output) {
      options.setInput(vector.values.data(), elements);
      options.setOutput(pages, elements);
    } else {
      options.setInput(pages, elements);
    }
    const std::string text = thrown<nezha::InvalidArgument>([&] { nezha::allreduce(options); });
    check_mentions(text, as_output ? "output 0" : "input 0");
    check_mentions(text, "from byte " + std::to_string(page) + " on " + what);
  };
  protect(PROT_NONE);
  refused("may not be read", false);
  refused("may not be read", true);
  protect(PROT_READ);
  refused("may not be written to", true);
  check(munmap(pages + elements / 3, page) == 0, "munmap");
  refused("is not mapped", false);
  check(vector.is_untouched(), "it was started");
  // The context still works.
  vector.start(context, 1).wait();
  vector.check_sum();
}

void bad_rooted_arguments(World& world) {
  const auto context = world.join();
  Vector vector(world, 100, 1);
  float* data = vector.values.data();
  const auto refused = [](const std::string& what, const auto& call) {
    check_mentions(thrown<nezha::InvalidArgument>(call), what);
  };
  const auto reduce = [&](const std::string& what,
                          const std::function<void(nezha::ReduceOptions&)>& set) {
    nezha::ReduceOptions options(context);
    options.setRoot(world.rank);
    set(options);
    refused("reduce: " + what, [&] { nezha::reduce(options); });
  };
  const auto broadcast = [&](const std::string& what,
                             const std::function<void(nezha::BroadcastOptions&)>& set) {
    nezha::BroadcastOptions options(context);
    options.setRoot(world.rank);
    set(options);
    refused("broadcast: " + what, [&] { nezha::broadcast(options); });
  };
  reduce("the root is rank 2 of 2", [&](auto& o) { o.setRoot(2); });
  reduce("the root is rank -1 of 2", [&](auto& o) { o.setRoot(-1); });
  reduce("there is no input", [](auto&) {});
  reduce("there is no output", [&](auto& o) { o.setInput(data, 10); });
  reduce("there is no operation 99", [&](auto& o) {
    o.setOutput(data, 10);
    o.setOperation(static_cast<nezha::ReduceOperation>(99));
  });
  reduce("the inputs have 10 elements and the outputs have 11", [&](auto& o) {
    o.setInput(data, 10);
    o.setOutput(data + 20, 11);
  });
  reduce("output 0 is a null pointer",
         [](auto& o) { o.setOutput(static_cast<float*>(nullptr), 1); });
  constexpr auto kNoType = static_cast<nezha::DataType>(99);
  for (const size_t elements : {0, 10}) {
    reduce("there is no type 99", [&](auto& o) {
      o.setInput(kNoType, data, elements);
      o.setOutput(kNoType, data, elements);
    });
    broadcast("there is no type 99", [&](auto& o) { o.setOutput(kNoType, data, elements); });
    nezha::AllreduceOptions all(context);
    all.setOutput(kNoType, data, elements);
    refused("allreduce: there is no type 99", [&] { nezha::allreduce(all); });
  }
  broadcast("there is no input", [](auto&) {});
  broadcast("input 0 and output 0 overlap", [&](auto& o) {
    o.setInput(data, 10);
    o.setOutput(data + 5, 10);
  });
  broadcast("there is no output", [&](auto& o) { o.setRoot(1 - world.rank); });
  broadcast("the inputs and the outputs have different element types", [&](auto& o) {
    o.setInput(data, 10);
    o.setOutput(reinterpret_cast<int*>(data + 20), 10);
  });
  // The context still works.
  nezha::barrier(nezha::BarrierOptions(context));
}

}  // namespace

Scenarios of_arguments() {
  return {{"bad-arguments", bad_arguments},
          {"bad-contexts", bad_contexts},
          {"checked-pointers", checked_pointers},
          {"bad-rooted-arguments", bad_rooted_arguments}};
}

}  // namespace nezha::scenarios
