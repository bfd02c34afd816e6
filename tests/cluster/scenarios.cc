// One rank of a scenario: short programs against the public API, of which each rank plays its part
// in its own process. `scenarios NAME STORE RAIL,...` with RANK and SIZE in the environment; exit
// status 0 if all went as it should.
#include <gloo/rendezvous/file_store.h>
#include <gloo/rendezvous/prefix_store.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <sstream>
#include <stdexcept>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "nezha/allreduce.h"
#include "nezha/barrier.h"
#include "nezha/broadcast.h"
#include "nezha/context.h"
#include "nezha/errors.h"
#include "nezha/reduce.h"

namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;
constexpr milliseconds kPatience{20'000};

void check(bool holds, const std::string& what) {
  if (!holds) throw std::logic_error(what);
}

// A rank of a group.
struct Place {
  int rank;
  int size;
};

class World : public Place {
 public:
  World(const std::string& store, const std::string& rails)
      : Place{std::atoi(std::getenv("RANK")), std::atoi(std::getenv("SIZE"))},
        folder_(store),
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
  // Another context of the same ranks.
  std::shared_ptr<nezha::Context> join_again(const std::string& name) {
    options_.timeout = kPatience;
    auto store = std::make_shared<gloo::rendezvous::PrefixStore>(name, *store_);
    return nezha::Context::create(store, options_);
  }
  // As that rank, of a context of that name. Thread-safe.
  std::shared_ptr<nezha::Context> join_as(Place place, const std::string& name) const {
    nezha::ContextOptions options = options_;
    options.rank = place.rank;
    options.size = place.size;
    options.timeout = kPatience;
    const std::string folder = folder_ + "/" + name;
    std::filesystem::create_directory(folder);
    return nezha::Context::create(std::make_shared<gloo::rendezvous::FileStore>(folder), options);
  }
  // From rank to rank, past nezha.
  void tell(const std::string& what) { store_->set("told-" + what, {'y'}); }
  void await(const std::string& what) { store_->wait({"told-" + what}, kPatience); }

 private:
  std::string folder_;
  std::shared_ptr<gloo::rendezvous::FileStore> store_;
  nezha::ContextOptions options_;
};

// A vector of this rank's, and what its sum over all ranks is.
class Vector {
 public:
  Vector(const Place& place, size_t elements, int seed) : place_(place), seed_(seed) {
    for (size_t i = 0; i < elements; ++i) values.push_back(value(place.rank, i));
  }
  void check_sum(int times = 1) const {
    for (size_t i = 0; i < values.size(); ++i) {
      float sum = 0;
      for (int rank = 0; rank < place_.size; ++rank) sum += value(rank, i);
      if (values[i] == sum * static_cast<float>(times)) continue;
      throw std::logic_error("element " + std::to_string(i) + " of " +
                             std::to_string(values.size()) + " is wrong");
    }
  }
  bool is_untouched() const {
    for (size_t i = 0; i < values.size(); ++i) {
      if (values[i] != value(place_.rank, i)) return false;
    }
    return true;
  }
  // What that rank's is.
  std::vector<float> of(int rank) const {
    std::vector<float> its;
    for (size_t i = 0; i < values.size(); ++i) its.push_back(value(rank, i));
    return its;
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
  Place place_;
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
constexpr size_t kLarge = 2'000'000;

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
  refused("nezha's own", [&](Options& o) {
    o.setOutput(data, 10);
    o.setTag(0xffffffff);
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

void bad_contexts(World& world) {
  const auto refused = [&](const std::string& what, const std::function<void()>& call) {
    check_mentions(thrown<nezha::InvalidArgument>(call), what);
  };
  refused("no store", [] { nezha::Context::create(nullptr, {}); });
  nezha::AllreduceOptions nowhere(nullptr);
  refused("no context", [&] { nezha::allreduce(nowhere); });
  refused("no context", [&] { const auto handle = nezha::allreduceAsync(nowhere); });

  const auto context = world.join();
  Vector vector(world, 100, 1);
  for (const int ms : {0, -1}) {
    refused("a timeout of " + std::to_string(ms) + " ms",
            [&] { nezha::allreduce(vector.options(context, 1, milliseconds(ms))); });
  }
  check(vector.is_untouched(), "the memory was written to");
  vector.start(context, 1, milliseconds::max()).wait();
  vector.check_sum();
}

// A rank that gives no rank a time to join fails, and the other one learns why.
void bad_timeout(World& world) {
  constexpr const char* kReason = "a timeout of -5 ms";
  if (world.rank == 0) {
    check_mentions(thrown<nezha::InvalidArgument>([&] { world.join(milliseconds(-5)); }), kReason);
    world.tell("refused");
    world.await("heard");
    return;
  }
  world.await("refused");
  const std::string text = thrown<nezha::IoError>([&] { world.join(); });
  check_mentions(text, "rank 0 cannot join");
  check_mentions(text, kReason);
  world.tell("heard");
}

// A rank of which there is none, or that is not given, fails, and the other one learns why.
void bad_ranks(World& world) {
  const std::map<int, std::string> bad = {{2, "rank 2 of a context of 2 ranks"}, {-1, "no rank"}};
  for (const auto& [rank, why] : bad) {
    const std::string name = "bad" + std::to_string(rank);
    if (world.rank == 1) {
      const Place place{rank, 2};
      check_mentions(thrown<nezha::InvalidArgument>([&] { world.join_as(place, name); }), why);
      continue;
    }
    const auto context = world.join_as(world, name);
    Vector vector(world, 1000, 1);
    const std::string text = thrown<nezha::IoError>([&] { vector.start(context, 1).wait(); });
    check_mentions(text, (rank < 0 ? "a rank cannot join: " : "rank 2 cannot join: ") + why);
  }
}

// Ranks 1 and 2 are threads of one process: the one that comes second is refused, and the others
// learn of it.
void two_ranks_in_one_process(World& world) {
  const auto error_of = [&](int rank) {
    return thrown<std::exception>([&] {
      const Place place{rank, 3};
      Vector vector(place, 1000, 1);
      vector.start(world.join_as(place, "three"), 1).wait();
    });
  };
  constexpr const char* kWhy = "the context has a rank in this process already";
  if (world.rank == 0) return check_mentions(error_of(0), std::string("cannot join: ") + kWhy);
  std::string one, other;
  std::thread thread([&] { one = error_of(1); });
  other = error_of(2);
  thread.join();
  const std::string cannot_join = "cannot join";
  const bool one_learns = one.find(cannot_join) != std::string::npos;
  const bool other_learns = other.find(cannot_join) != std::string::npos;
  check(one_learns != other_learns, "who was refused? " + one + "; " + other);
  check_mentions(one, kWhy);
  check_mentions(other, kWhy);
}

// ---- Several contexts --------------------------------------------------------------------------

using Context = std::shared_ptr<nezha::Context>;

Place place_in(const Context& context) { return {context->rank(), context->size()}; }

void check_works(const Context& context, int seed, size_t elements = 1000) {
  Vector vector(place_in(context), elements, seed);
  vector.start(context, 1).wait();
  vector.check_sum();
}

// This process's TCP connections.
size_t connections() {
  std::set<std::string> own;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;  // the one that lists them
    const std::string target = std::filesystem::read_symlink(entry.path(), gone);
    if (target.rfind("socket:[", 0) == 0) own.insert(target.substr(8, target.size() - 9));
  }
  size_t count = 0;
  std::ifstream table("/proc/self/net/tcp");
  for (std::string line; std::getline(table, line);) {
    std::istringstream words(line);
    const std::vector<std::string> fields{std::istream_iterator<std::string>(words), {}};
    const bool established = fields.size() > 9 && fields[3] == "01";
    if (established && own.contains(fields[9])) ++count;
  }
  return count;
}

void await_connections(size_t count) {
  const auto limit = Clock::now() + kPatience;
  while (connections() != count) {
    check(Clock::now() < limit, std::to_string(connections()) + " connections");
    std::this_thread::yield();
  }
}

// As Horovod makes them: of all ranks, of those of one host, and of those of one place on their
// hosts. And a second one of all ranks that is created by itself.
void horovods_contexts(World& world) {
  const Context global = world.join();
  const Context local = global->split(world.rank / 2, world.rank % 2);
  const Context cross = global->split(world.rank % 2, world.rank / 2);
  const Context again = world.join_again("again");
  check(local->size() == 2 && local->rank() == world.rank % 2, "local is wrong");
  check(cross->size() == 2 && cross->rank() == world.rank / 2, "cross is wrong");
  std::vector<std::thread> threads;
  std::vector<std::exception_ptr> errors(4);
  for (size_t c = 0; c < errors.size(); ++c) {
    threads.emplace_back([&, c] {
      const Context& context = *std::array{&global, &local, &cross, &again}[c];
      try {
        for (int i = 0; i < 20; ++i) {
          Vector vector(place_in(context), kSizes[(i + c) % 4], i + 50 * static_cast<int>(c));
          nezha::AllreduceOptions options = vector.options(context, 1);
          options.setAlgorithm(nezha::Algorithm::kDirect);  // all with all
          nezha::allreduce(options);
          vector.check_sum();
        }
      } catch (...) {
        errors[c] = std::current_exception();
      }
    });
  }
  for (auto& thread : threads) thread.join();
  for (const auto& error : errors) {
    if (error != nullptr) std::rethrow_exception(error);
  }
  // One with each other rank on each of the two rails, and no more.
  await_connections(static_cast<size_t>(world.size - 1) * global->rails().size());
  global->dup();  // a rank that is through earlier closes what another still counts
}

void splits(World& world) {
  Context parent = world.join();
  const int last = world.size - 1;
  // By descending rank.
  const Context reversed = parent->split(5, -world.rank);
  check(reversed->size() == world.size && reversed->rank() == last - world.rank, "not reversed");
  check_works(reversed, 1);
  // Without the last.
  const int color = world.rank == last ? nezha::Context::kNoColor : 0;
  Context others = reversed->split(color, world.rank);
  check((others == nullptr) == (world.rank == last), "who has no color is in a context");
  if (others != nullptr) {
    check(others->size() == last && others->rank() == world.rank, "the order is wrong");
    check_works(others, 2, 100'000);
  }
  // Each by itself.
  const Context alone = parent->split(world.rank, 0);
  check(alone->size() == 1 && alone->rank() == 0, "not alone");
  check_works(alone, 3);
  // It outlives the one that it was made of, and of its own parts some outlive it.
  const Context copy = parent->dup();
  parent.reset();
  check_works(copy, 4, 100'000);
  others.reset();
  const Context part = copy->split(world.rank % 2, 0);
  check_works(part, 5);
  check_works(copy, 6);
  check_works(reversed, 7);
}

// Ranks that have not spoken to each other connect for the new context, at once.
void strangers(World& world) {
  for (int i = 0; i < 30; ++i) {
    const Context whole = world.join_again(std::to_string(i));
    // By recursive doubling neither 0 and 3 speak to each other nor 1 and 2.
    const Context part = whole->split(std::min(world.rank, 3 - world.rank), 0);
    check_works(part, i);
  }
}

// The same tag on both, in another order on each rank.
void duplicates(World& world) {
  const Context one = world.join();
  const Context two = one->dup();
  check(two->rank() == one->rank() && two->size() == one->size(), "it is another group");
  check(two->timeout() == one->timeout(), "it has other options");
  for (int i = 0; i < 10; ++i) {
    Vector a(world, kSizes[i % 5], i), b(world, kSizes[(i + 1) % 5], 100 + i);
    const bool first = (world.rank + i) % 2 == 0;
    nezha::Handle x = first ? a.start(one, 1) : b.start(two, 1);
    nezha::Handle y = first ? b.start(two, 1) : a.start(one, 1);
    x.wait();
    y.wait();
    a.check_sum();
    b.check_sum();
  }
}

// If one breaks, the other does not.
void broken_part(World& world) {
  const Context whole = world.join();
  const Context part = whole->dup();
  check_works(whole, 1);
  if (world.rank == 0) {
    Vector vector(world, kLarge, 2);
    vector.start(part, 1).cancel();
  }
  const std::string text = thrown<nezha::IoError>([&] { check_works(part, 2, kLarge); });
  check_mentions(text, "split from rank " + std::to_string(world.rank));
  check_mentions(text, "cancelled");
  check_mentions(thrown<nezha::IoError>([&] { part->dup(); }), "cancelled");
  check_works(whole, 4);
  check_works(whole->dup(), 5);
}

// A rank that goes instead.
void split_without_a_rank(World& world) {
  Context context = world.join();
  check_works(context, 1);
  if (world.rank == 0) return;
  check_mentions(thrown<nezha::IoError>([&] { context->split(0, 0); }), "rank 0");
}

// ---- Children of fork() ------------------------------------------------------------------------

// A child that runs `part`, and how it ended.
class Child {
 public:
  // `part` returns the exit status, or does not return.
  explicit Child(const std::function<int()>& part) : pid_(fork()) {
    if (pid_ != 0) return;
    try {
      _exit(part());
    } catch (const std::exception& error) {
      std::fprintf(stderr, "in the child: %s\n", error.what());
      _exit(1);
    }
  }
  ~Child() {
    if (pid_ <= 0) return;
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  // As waitpid tells it.
  int end() {
    const auto limit = Clock::now() + kPatience;
    int status = 0;
    while (waitpid(pid_, &status, WNOHANG) == 0) {
      check(Clock::now() < limit, "the child never ends");
      std::this_thread::sleep_for(milliseconds(1));
    }
    pid_ = -1;
    return status;
  }

 private:
  pid_t pid_;
};

// While operations run: one child after the other that inherits them, and does with them what
// children do that mean no harm.
void harmless_children(World& world) {
  // Static: also destroyed by who calls exit().
  static Context context = world.join();
  static nezha::Handle finished;
  check_works(context, 1);
  Vector first(world, 1000, 2);
  finished = first.start(context, 2);
  finished.wait();
  std::atomic<bool> through{false};
  std::string trouble;
  // So that locks are held at any time, until both ranks are through.
  std::thread busy([&] {
    trouble = thrown<std::exception>([&] {
      for (int i = 0, ranks_through = 0; ranks_through < world.size; ++i) {
        check_works(context, i, kSizes[i % 4]);
        ranks_through = through ? 1 : 0;
        nezha::AllreduceOptions options(context);
        options.setOutput(&ranks_through, 1);
        options.setTag(2);
        nezha::allreduce(options);
      }
    });
  });
  for (int i = 0; i < 30; ++i) {
    Vector vector(world, 100'000, i);
    nezha::Handle handle = vector.start(context, 3);
    Child child([&]() -> int {
      if (i % 3 == 0) return 0;
      if (i % 3 == 1) std::exit(0);
      handle = nezha::Handle();
      finished = nezha::Handle();
      context.reset();
      return 0;
    });
    check(child.end() == 0, "a child has failed");
    handle.wait();
    vector.check_sum();
  }
  through = true;
  busy.join();
  check(trouble.empty(), trouble);
  check_works(context, 3);
  finished = nezha::Handle();
  context.reset();
}

// One that uses what is not its own, and then makes what is.
void children_with_contexts(World& world) {
  const Context context = world.join();
  check_works(context, 1);
  Vector vector(world, kLarge, 2);
  nezha::Handle handle = vector.start(context, 1);
  Child child([&] {
    const auto refused = [](const std::function<void()>& call) {
      check_mentions(thrown<nezha::InvalidArgument>(call), "fork()");
    };
    refused([&] { handle.test(); });
    refused([&] { handle.wait(); });
    refused([&] { handle.error(); });
    refused([&] { handle.cancel(); });
    refused([&] { check_works(context, 1); });
    refused([&] { context->dup(); });
    refused([&] { context->rails(); });
    check(context->rank() == world.rank && context->size() == world.size, "who am I?");
    check(connections() == 0, "it has kept connections");
    const Context own = world.join_again("again");
    for (int i = 0; i < 5; ++i) check_works(own, i, kLarge);
    return 0;
  });
  handle.wait();
  vector.check_sum();
  check(child.end() == 0, "the child has failed");
  check_works(context, 3);
}

// A rank that is killed is missed though it leaves children behind.
void killed_with_children(World& world) {
  if (world.rank == 0) {
    const Context context = world.join();
    check_works(context, 1);
    const std::string text = thrown<nezha::IoError>([&] { check_works(context, 2, kLarge); });
    check_mentions(text, "rank 1");
    check(text.find("was not complete") == std::string::npos, "not noticed: " + text);
    world.tell("missed");
    return;
  }
  std::array<int, 2> pipe_ends{};
  check(pipe(pipe_ends.data()) == 0, "no pipe");
  Child rank([&]() -> int {
    const Context context = world.join();
    check_works(context, 1);
    if (fork() == 0) {  // until whoever started the rank is through
      close(pipe_ends[1]);
      char nothing;
      _exit(read(pipe_ends[0], &nothing, 1) == 0 ? 0 : 1);
    }
    return raise(SIGKILL);
  });
  check(WIFSIGNALED(rank.end()), "it was not killed");
  world.await("missed");
}

// ---- NEZHA_CHECK_POINTERS ----------------------------------------------------------------------

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
  // And the context is as it was.
  vector.start(context, 1).wait();
  vector.check_sum();
}

// Rank 0 knows when rank 1 comes.
void barrier(World& world) {
  const auto context = world.join();
  const nezha::BarrierOptions options(context);
  nezha::barrier(options);
  if (world.rank == 1) {
    world.await("waiting");
    return nezha::barrier(options);
  }
  nezha::Handle handle = nezha::barrierAsync(options);
  check(!handle.wait(milliseconds(50)), "over without rank 1");
  world.tell("waiting");
  handle.wait();
}

// Among others in flight, with and without an input or an output of its own.
void rooted(World& world) {
  const auto context = world.join();
  for (const size_t elements : kSizes) {
    for (int root = 0; root < world.size; ++root) {
      const bool is_root = world.rank == root;
      const Vector input(world, elements, 1);
      Vector sum(world, elements, 1), copy(world, elements, root + 2), other(world, elements, 3);
      const std::vector<float> roots_own = copy.values;
      nezha::Handle allreduce = other.start(context, 3);

      nezha::ReduceOptions reduce(context);
      reduce.setRoot(root);
      reduce.setTag(1);
      if (!is_root) reduce.setInput(input.values.data(), elements);
      if (is_root) reduce.setOutput(sum.values.data(), elements);
      nezha::Handle reduced = nezha::reduceAsync(reduce);

      nezha::BroadcastOptions broadcast(context);
      broadcast.setRoot(root);
      broadcast.setTag(2);
      if (is_root) broadcast.setInput(input.values.data(), elements);
      if (!is_root || root == 0) broadcast.setOutput(copy.values.data(), elements);
      nezha::broadcast(broadcast);
      reduced.wait();
      allreduce.wait();

      check(input.is_untouched(), "the input was written to");
      if (is_root) sum.check_sum();
      other.check_sum();
      const bool has_copy = !is_root || root == 0;
      check(copy.values == (has_copy ? input.of(root) : roots_own), "the copy is wrong");
    }
  }
}

void check_roots_that_differ(World& world, size_t elements) {
  const auto context = world.join();
  Vector vector(world, elements, 1);
  nezha::BroadcastOptions options(context);
  options.setOutput(vector.values.data(), elements);
  options.setRoot(world.rank);
  const std::string text = thrown<nezha::IoError>([&] { nezha::broadcast(options); });
  check_mentions(text, "broadcast from rank 0");
  check_mentions(text, "broadcast from rank 1");
}

void roots_that_differ(World& world) { check_roots_that_differ(world, 1); }
void roots_that_differ_large(World& world) { check_roots_that_differ(world, 300'000); }

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
  reduce("no input", [](auto&) {});
  reduce("no output", [&](auto& o) { o.setInput(data, 10); });
  reduce("there is no operation 99", [&](auto& o) {
    o.setOutput(data, 10);
    o.setOperation(static_cast<nezha::ReduceOperation>(99));
  });
  reduce("inputs of 10 elements and outputs of 11", [&](auto& o) {
    o.setInput(data, 10);
    o.setOutput(data + 20, 11);
  });
  reduce("output 0 is a null pointer",
         [](auto& o) { o.setOutput(static_cast<float*>(nullptr), 1); });
  broadcast("no input", [](auto&) {});
  broadcast("input 0 and output 0 overlap", [&](auto& o) {
    o.setInput(data, 10);
    o.setOutput(data + 5, 10);
  });
  broadcast("no output", [&](auto& o) { o.setRoot(1 - world.rank); });
  broadcast("the inputs and the outputs have different element types", [&](auto& o) {
    o.setInput(data, 10);
    o.setOutput(reinterpret_cast<int*>(data + 20), 10);
  });
  // And the context is as it was.
  nezha::barrier(nezha::BarrierOptions(context));
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
    {"bad-contexts", bad_contexts},
    {"bad-timeout", bad_timeout},
    {"bad-ranks", bad_ranks},
    {"two-ranks-in-one-process", two_ranks_in_one_process},
    {"horovods-contexts", horovods_contexts},
    {"splits", splits},
    {"strangers", strangers},
    {"duplicates", duplicates},
    {"broken-part", broken_part},
    {"split-without-a-rank", split_without_a_rank},
    {"harmless-children", harmless_children},
    {"children-with-contexts", children_with_contexts},
    {"killed-with-children", killed_with_children},
    {"checked-pointers", checked_pointers},
    {"barrier", barrier},
    {"rooted", rooted},
    {"roots-that-differ", roots_that_differ},
    {"roots-that-differ-large", roots_that_differ_large},
    {"bad-rooted-arguments", bad_rooted_arguments},
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
