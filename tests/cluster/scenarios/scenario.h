// SPDX-License-Identifier: Apache-2.0
// What scenarios share: a meeting place for the ranks, vectors with known sums, and checks.
#pragma once

#include <gloo/rendezvous/file_store.h>
#include <gloo/rendezvous/prefix_store.h>

#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <memory>
#include <sstream>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "nezha/allreduce.h"
#include "nezha/context.h"

namespace nezha::scenarios {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;
constexpr milliseconds kPatience{20'000};

inline void check(bool holds, const std::string& what) {
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
  // Creates another context of the same ranks.
  std::shared_ptr<nezha::Context> join_again(const std::string& name) {
    options_.timeout = kPatience;
    auto store = std::make_shared<gloo::rendezvous::PrefixStore>(name, *store_);
    return nezha::Context::create(store, options_);
  }
  // Joins a context of this name as the given rank. Thread-safe.
  std::shared_ptr<nezha::Context> join_as(Place place, const std::string& name) const {
    nezha::ContextOptions options = options_;
    options.rank = place.rank;
    options.size = place.size;
    options.timeout = kPatience;
    const std::string folder = folder_ + "/" + name;
    std::filesystem::create_directory(folder);
    return nezha::Context::create(std::make_shared<gloo::rendezvous::FileStore>(folder), options);
  }
  // As join_again(), with another rail.
  std::shared_ptr<nezha::Context> join_by(const std::string& rail, const std::string& name) {
    World other = *this;
    other.options_.rails = {rail};
    return other.join_again(name);
  }
  // A signal from rank to rank that does not use nezha.
  void tell(const std::string& what) { store_->set("told-" + what, {'y'}); }
  void await(const std::string& what) { store_->wait({"told-" + what}, kPatience); }

 private:
  std::string folder_;
  std::shared_ptr<gloo::rendezvous::FileStore> store_;
  nezha::ContextOptions options_;
};

// A vector of this rank, and its sum over all ranks.
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
  // The vector of the given rank.
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

// The text of the exception that `f` throws, or "".
template <typename Exception, typename F>
std::string thrown(F f) {
  try {
    f();
  } catch (const Exception& error) {
    return error.what();
  }
  return "";
}

inline void check_mentions(const std::string& text, const std::string& what) {
  check(text.find(what) != std::string::npos, "'" + what + "' is not in: " + text);
}

inline void await_end(const nezha::Handle& handle) {
  const auto limit = Clock::now() + kPatience;
  while (!handle.test()) {
    check(Clock::now() < limit, "it never ends");
    std::this_thread::yield();
  }
}

constexpr size_t kSizes[] = {0, 1, 1000, 70'000, 300'001};
constexpr size_t kLarge = 2'000'000;

using Context = std::shared_ptr<nezha::Context>;

inline Place place_in(const Context& context) { return {context->rank(), context->size()}; }

inline void check_works(const Context& context, int seed, size_t elements = 1000) {
  Vector vector(place_in(context), elements, seed);
  vector.start(context, 1).wait();
  vector.check_sum();
}

using Scenarios = std::map<std::string, void (*)(World&)>;

// The scenarios by subject, each defined in its own file.
Scenarios of_handles();
Scenarios of_reductions();
Scenarios of_arguments();
Scenarios of_joining();
Scenarios of_shortage();
Scenarios of_several_contexts();
Scenarios of_forks();
Scenarios of_leaving();
Scenarios of_rooted_collectives();
Scenarios of_blocks();
Scenarios of_point_to_point();

}  // namespace nezha::scenarios
