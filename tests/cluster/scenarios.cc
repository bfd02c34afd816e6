// One rank of a scenario: short programs against the public API, of which each rank plays its part
// in its own process. `scenarios NAME STORE RAIL,...` with RANK and SIZE in the environment; exit
// status 0 if all went as it should.
#include <gloo/rendezvous/file_store.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "nezha/allreduce.h"
#include "nezha/context.h"
#include "nezha/errors.h"

namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;
constexpr milliseconds kPatience{20'000};

void check(bool holds, const std::string& what) {
  if (!holds) throw std::logic_error(what);
}

class World {
 public:
  World(const std::string& store, const std::string& rails)
      : rank(std::atoi(std::getenv("RANK"))),
        size(std::atoi(std::getenv("SIZE"))),
        store_(std::make_shared<gloo::rendezvous::FileStore>(store)) {
    std::istringstream stream(rails);
    for (std::string rail; std::getline(stream, rail, ',');) options_.rails.push_back(rail);
    options_.rank = rank;
    options_.size = size;
  }
  std::shared_ptr<nezha::Context> join(milliseconds timeout = kPatience) {
    options_.timeout = timeout;
    return nezha::Context::create(store_, options_);
  }
  // From rank to rank, past nezha.
  void tell(const std::string& what) { store_->set("told-" + what, {'y'}); }
  void await(const std::string& what) { store_->wait({"told-" + what}, kPatience); }

  const int rank;
  const int size;

 private:
  std::shared_ptr<gloo::rendezvous::FileStore> store_;
  nezha::ContextOptions options_;
};

// A vector of this rank's, and what its sum over all ranks is.
class Vector {
 public:
  Vector(const World& world, size_t elements, int seed) : world_(world), seed_(seed) {
    for (size_t i = 0; i < elements; ++i) values.push_back(value(world.rank, i));
  }
  void check_sum(int times = 1) const {
    for (size_t i = 0; i < values.size(); ++i) {
      float sum = 0;
      for (int rank = 0; rank < world_.size; ++rank) sum += value(rank, i);
      if (values[i] == sum * static_cast<float>(times)) continue;
      throw std::logic_error("element " + std::to_string(i) + " of " +
                             std::to_string(values.size()) + " is wrong");
    }
  }
  bool is_untouched() const {
    for (size_t i = 0; i < values.size(); ++i) {
      if (values[i] != value(world_.rank, i)) return false;
    }
    return true;
  }
  nezha::Handle start(const std::shared_ptr<nezha::Context>& context, uint32_t tag,
                      milliseconds timeout = kPatience) {
    return nezha::allreduceAsync(options(context, tag, timeout));
  }
  nezha::AllreduceOptions options(const std::shared_ptr<nezha::Context>& context, uint32_t tag,
                                  milliseconds timeout = kPatience) {
    nezha::AllreduceOptions options(context);
    options.setOutput(values.data(), values.size());
    options.setTag(tag);
    options.setTimeout(timeout);
    return options;
  }
  std::vector<float> values;

 private:
  float value(int rank, size_t i) const {
    return static_cast<float>((i * 31 + static_cast<size_t>(rank * 7 + seed_)) % 1000);
  }
  const World& world_;
  int seed_;
};

// The text of what `f` throws; "" if it throws nothing.
template <typename Exception, typename F>
std::string thrown(F f) {
  try {
    f();
  } catch (const Exception& error) {
    return error.what();
  }
  return "";
}

void check_mentions(const std::string& text, const std::string& what) {
  check(text.find(what) != std::string::npos, "'" + what + "' is not in: " + text);
}

void await_end(const nezha::Handle& handle) {
  const auto limit = Clock::now() + kPatience;
  while (!handle.test()) {
    check(Clock::now() < limit, "it never ends");
    std::this_thread::yield();
  }
}

// ---- The scenarios -----------------------------------------------------------------------------

constexpr size_t kSizes[] = {0, 1, 1000, 70'000, 300'001};

void many_in_flight(World& world) {
  const auto context = world.join();
  std::vector<Vector> vectors;
  std::vector<nezha::Handle> handles;
  vectors.reserve(60);
  handles.reserve(60);
  for (int i = 0; i < 60; ++i) vectors.emplace_back(world, kSizes[i % 5], i);
  for (int i = 0; i < 60; ++i) {
    handles.push_back(vectors[static_cast<size_t>(i)].start(context, static_cast<uint32_t>(i % 3)));
  }
  for (size_t i = handles.size(); i > 0; --i) handles[i - 1].wait();
  for (size_t i = 0; i < handles.size(); ++i) {
    check(handles[i].test() && handles[i].error() == nullptr, "it is not over, or failed");
    vectors[i].check_sum();
  }
}

// Nobody waits: the library's own thread does all of it.
void nobody_waits(World& world) {
  const auto context = world.join();
  for (int i = 0; i < 20; ++i) {
    Vector vector(world, kSizes[i % 5], i);
    const nezha::Handle handle = vector.start(context, 1);
    await_end(handle);
    check(handle.error() == nullptr, "it failed");
    vector.check_sum();
  }
}

// Giving up waiting does the operation no harm.
void patience(World& world) {
  const auto context = world.join();
  Vector vector(world, 1000, 1);
  if (world.rank == 1) world.await("impatient");
  nezha::Handle handle = vector.start(context, 1);
  if (world.rank == 0) {
    check(!handle.wait(milliseconds(20)), "over without rank 1");
    check(!handle.test(), "over without rank 1");
    world.tell("impatient");
  }
  check(handle.wait(kPatience), "it never ends");
  vector.check_sum();
}

// Rank 1 learns, when it comes, that rank 0 has given the operation up.
void check_given_up(World& world, const std::function<void(nezha::Handle)>& give_up) {
  auto context = world.join();
  Vector first(world, 10, 0);
  first.start(context, 1).wait();
  Vector vector(world, 500'000, 1);
  if (world.rank != 0) {
    world.await("given up");
    const std::string text = thrown<nezha::IoError>([&] { vector.start(context, 1).wait(); });
    check_mentions(text, "rank 0");
    return;
  }
  give_up(vector.start(context, 1));
  check(vector.is_untouched(), "the memory was written to");
  world.tell("given up");
  const std::string text = thrown<nezha::IoError>([&] { vector.start(context, 2).wait(); });
  check_mentions(text, "cancelled");
}

void dropped(World& world) {
  check_given_up(world, [](const nezha::Handle&) {});
}

void cancelled(World& world) {
  check_given_up(world, [](nezha::Handle handle) {
    handle.cancel();
    check(handle.test(), "not over");
    check(handle.error() != nullptr, "no error");
    check_mentions(thrown<nezha::IoError>([&] { handle.wait(); }), "cancelled");
  });
}

void context_destroyed(World& world) {
  auto context = world.join();
  Vector first(world, 10, 0);
  first.start(context, 1).wait();
  Vector vector(world, 500'000, 1);
  if (world.rank != 0) {
    world.await("destroyed");
    const std::string text = thrown<nezha::IoError>([&] { vector.start(context, 1).wait(); });
    check_mentions(text, "rank 0");
    return;
  }
  nezha::Handle handle = vector.start(context, 1);
  context.reset();
  check(handle.test(), "not over");
  check(vector.is_untouched(), "the memory was written to");
  check_mentions(thrown<nezha::IoError>([&] { handle.wait(); }), "context was destroyed");
  world.tell("destroyed");
}

// The deadline is the operation's own.
void deadline(World& world) {
  const auto context = world.join();
  Vector first(world, 10, 0);
  first.start(context, 1).wait();
  Vector vector(world, 1000, 1);
  if (world.rank == 1) {
    world.await("timed out");
    check_mentions(thrown<nezha::IoError>([&] { vector.start(context, 1).wait(); }), "rank 0");
    return;
  }
  nezha::Handle handle = vector.start(context, 1, milliseconds(100));
  await_end(handle);
  check_mentions(thrown<nezha::TimeoutError>([&] { handle.wait(); }), "rank 1");
  world.tell("timed out");
}

// The peers' records come after the operations were started: they wait, in order.
void early_start(World& world) {
  if (world.rank == 1) world.await("started");
  const auto context = world.join();
  std::vector<Vector> vectors;
  std::vector<nezha::Handle> handles;
  vectors.reserve(5);
  handles.reserve(5);
  for (int i = 0; i < 5; ++i) vectors.emplace_back(world, kSizes[i], i);
  for (auto& vector : vectors) handles.push_back(vector.start(context, 1));
  if (world.rank == 0) {
    check(!handles.front().test(), "over without rank 1");
    world.tell("started");
  }
  for (auto& handle : handles) handle.wait();
  for (const auto& vector : vectors) vector.check_sum();
}

// A context that is destroyed while it asks the store for a peer.
void destroyed_early(World& world) {
  if (world.rank == 1) return;
  auto context = world.join();
  Vector vector(world, 1000, 1);
  nezha::Handle handle = vector.start(context, 1);
  context.reset();
  check_mentions(thrown<nezha::IoError>([&] { handle.wait(); }), "context was destroyed");
}

void several_inputs_and_outputs(World& world) {
  const auto context = world.join();
  for (const size_t elements : kSizes) {
    const Vector input(world, elements, 1);
    Vector one(world, elements, 1), two(world, elements, 1);
    nezha::AllreduceOptions options = one.options(context, 1);
    options.setInputs<float>({input.values.data(), one.values.data(), input.values.data()},
                             elements);
    options.setOutputs<float>({one.values.data(), two.values.data()}, elements);
    nezha::allreduce(options);
    one.check_sum(3);
    two.check_sum(3);
    check(input.is_untouched(), "an input was written to");

    // Without inputs the outputs are.
    Vector three(world, elements, 2), four(world, elements, 2);
    options = three.options(context, 1);
    options.setOutputs<float>({three.values.data(), four.values.data()}, elements);
    nezha::allreduce(options);
    three.check_sum(2);
    four.check_sum(2);
  }
}

// A rank's and its input's x -> m·x + c, modulo 2^32: associative, but not commutative. The upper
// half is m.
uint64_t line(int rank, size_t input, size_t i) {
  const uint64_t x = (i + 1) * 0x9e3779b97f4a7c15U + (static_cast<size_t>(rank) * 2 + input) * 977;
  return x ^ x >> 29;
}

// First a, then b.
uint64_t compose(uint64_t a, uint64_t b) {
  const uint64_t m = b >> 32;
  const uint64_t c = m * (a & 0xffffffff) + b;
  return ((a >> 32) * m) << 32 | (c & 0xffffffff);
}

// In the order of ranks and their inputs.
void not_commutative(World& world) {
  const auto context = world.join();
  for (const auto algorithm : {nezha::Algorithm::kAuto, nezha::Algorithm::kHalvingDoubling}) {
    for (const size_t elements : kSizes) {
      std::vector<uint64_t> first(elements), second(elements), expected(elements);
      for (size_t i = 0; i < elements; ++i) {
        first[i] = line(world.rank, 0, i);
        second[i] = line(world.rank, 1, i);
        expected[i] = compose(line(0, 0, i), line(0, 1, i));
        for (int rank = 1; rank < world.size; ++rank) {
          expected[i] = compose(compose(expected[i], line(rank, 0, i)), line(rank, 1, i));
        }
      }
      nezha::AllreduceOptions options(context);
      options.setInputs(std::vector<uint64_t*>{first.data(), second.data()}, elements);
      options.setOutput(first.data(), elements);
      options.setAlgorithm(algorithm);
      options.setCommutative(false);
      options.setReduceFunction([](void* out, const void* a, const void* b, size_t count) {
        for (size_t i = 0; i < count; ++i) {
          static_cast<uint64_t*>(out)[i] =
              compose(static_cast<const uint64_t*>(a)[i], static_cast<const uint64_t*>(b)[i]);
        }
      });
      nezha::allreduce(options);
      check(first == expected, std::to_string(elements) + " elements are combined out of order");
    }
  }
}

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
  refused("no output", [&](Options&) {});
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
  refused("more than memory has", [&](Options& o) { o.setOutput(data, size_t{1} << 62); });
  refused("recursive doubling, halving-doubling or direct", [&](Options& o) {
    o.setOutput(data, 10);
    o.setAlgorithm(nezha::Algorithm::kRing);
    o.setReproducible(true);
  });
  refused("not commutative", [&](Options& o) {
    o.setOutput(data, 10);
    o.setAlgorithm(nezha::Algorithm::kBcube);
    o.setCommutative(false);
  });
  // And the context is as it was.
  vector.start(context, 1).wait();
  vector.check_sum();
}

const std::map<std::string, void (*)(World&)> kScenarios = {
    {"many-in-flight", many_in_flight},
    {"nobody-waits", nobody_waits},
    {"patience", patience},
    {"dropped", dropped},
    {"cancelled", cancelled},
    {"context-destroyed", context_destroyed},
    {"deadline", deadline},
    {"early-start", early_start},
    {"destroyed-early", destroyed_early},
    {"several-inputs-and-outputs", several_inputs_and_outputs},
    {"not-commutative", not_commutative},
    {"bad-arguments", bad_arguments},
};

}  // namespace

int main(int argc, char** argv) {
  const auto scenario = argc == 4 ? kScenarios.find(argv[1]) : kScenarios.end();
  if (scenario == kScenarios.end()) {
    for (const auto& [name, run] : kScenarios) std::puts(name.c_str());
    return argc == 1 ? 0 : 2;
  }
  try {
    World world(argv[2], argv[3]);
    scenario->second(world);
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s: %s\n", argv[1], error.what());
    return 1;
  }
}
