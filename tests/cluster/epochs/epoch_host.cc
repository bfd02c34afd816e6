// SPDX-License-Identifier: Apache-2.0
// A rank whose allreduces are carried in part by an engine that can be lost (star.h); also the
// other end of that engine. Checks every result, and that nothing writes to memory that was
// returned.
//
// epoch_host star ADDRESS PORT RANKS: the star; prints "serves".
//
// epoch_host rank STORE RANK RANKS RAILS ADDRESS PORT ELEMENTS OPERATIONS THREADS PAUSE: each
// thread runs OPERATIONS allreduces of ELEMENTS float32, in place and not in turn, with up to PAUSE
// ms between them; 0: until rank 0 sees a file STORE/stop. Prints a line of JSON for each, with a
// hash of its result and how many of the star's sums have come so far, and one for an error.
#include <gloo/rendezvous/file_store.h>

#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <filesystem>
#include <mutex>
#include <random>
#include <stdexcept>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "nezha/errors.h"
#include "tests/cluster/epochs/star.h"

namespace nezha::star {
namespace {

constexpr float kScribble = -1e30F;
constexpr uint32_t kStopTag = 1000;  // and higher, one for each thread

void print(const std::string& line) {
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  std::puts(line.c_str());
  std::fflush(stdout);
}

float input(int rank, size_t element, uint32_t tag, uint64_t operation) {
  uint64_t x = element * 0x9e3779b97f4a7c15 + operation * 1'000'003 + tag * 101 +
               static_cast<uint64_t>(rank);
  x = (x ^ (x >> 29)) * 0xbf58476d1ce4e5b9;
  return 1 + static_cast<float>(x >> 40) / 16'777'216;  // 1 to 2, so that a missing input shows
}

struct Job {
  int rank, ranks;
  size_t elements;
  uint64_t operations;
  int pause;
  std::string stop_file;
};

class Thread {
 public:
  Thread(const Job& job, ContextImpl& context, const StarEngine& engine, uint32_t tag)
      : job_(job),
        context_(context),
        engine_(engine),
        tag_(tag),
        in_(job.elements),
        out_(job.elements) {}

  void run() {
    std::mt19937 random(tag_ * 1000 + static_cast<uint32_t>(job_.rank));
    bool is_over = false;
    for (uint64_t i = 0; !is_over; ++i) {
      const auto pause = std::uniform_int_distribution<int>(0, job_.pause)(random);
      std::this_thread::sleep_for(std::chrono::milliseconds(pause));
      check_untouched(i);
      for (size_t e = 0; e < job_.elements; ++e) in_[e] = input(job_.rank, e, tag_, i);
      const bool in_place = i % 2 == 0;
      std::vector<float>& result = in_place ? in_ : out_;
      AllreduceOptions options(nullptr);
      if (!in_place) options.setInput(in_.data(), in_.size());
      options.setOutput(result.data(), result.size());
      options.setTag(tag_);
      context_.run(options);
      print(absl::StrCat("{\"event\": \"done\", \"tag\": ", tag_, ", \"operation\": ", i,
                         ", \"hash\": ", check(result, i), ", \"sums\": ", engine_.blocks(), "}"));
      std::fill(in_.begin(), in_.end(), kScribble);
      std::fill(out_.begin(), out_.end(), kScribble);
      is_over = job_.operations == 0 ? stop_requested() : i + 1 == job_.operations;
    }
  }

 private:
  // Rank 0 looks for the file, and all ranks learn of it from the same sum.
  bool stop_requested() {
    std::error_code ignored;
    float flag = job_.rank == 0 && std::filesystem::exists(job_.stop_file, ignored) ? 1 : 0;
    AllreduceOptions options(nullptr);
    options.setOutput(&flag, 1);
    options.setTag(kStopTag + tag_);
    context_.run(options);
    return flag != 0;
  }

  uint32_t check(const std::vector<float>& result, uint64_t operation) const {
    uint32_t hash = 2166136261;
    for (size_t e = 0; e < job_.elements; ++e) {
      double sum = 0;
      for (int r = 0; r < job_.ranks; ++r) sum += static_cast<double>(input(r, e, tag_, operation));
      if (std::abs(static_cast<double>(result[e]) - sum) > 1e-5 * sum) {
        throw std::runtime_error(absl::StrCat("tag ", tag_, ", operation ", operation, ", element ",
                                              e, " is ", result[e], ", not ", sum));
      }
      uint32_t bits = 0;
      std::memcpy(&bits, &result[e], sizeof bits);
      hash = (hash ^ bits) * 16777619;
    }
    return hash;
  }
  void check_untouched(uint64_t operation) const {
    if (operation == 0) return;
    for (size_t e = 0; e < job_.elements; ++e) {
      if (in_[e] == kScribble && out_[e] == kScribble) continue;
      throw std::runtime_error(absl::StrCat("tag ", tag_, ": element ", e, " was written to after ",
                                            "operation ", operation - 1, " had returned"));
    }
  }

  const Job& job_;
  ContextImpl& context_;
  const StarEngine& engine_;
  uint32_t tag_;
  std::vector<float> in_, out_;
};

int run_rank(const std::vector<std::string>& args) {
  const auto number = [&](size_t i) { return std::atoi(args.at(i).c_str()); };
  const Job job{number(1),
                number(2),
                static_cast<size_t>(number(6)),
                static_cast<uint64_t>(number(7)),
                number(9),
                args.at(0) + "/stop"};
  StarEngine engine(args.at(4), static_cast<uint16_t>(number(5)), job.rank);
  ContextOptions options;
  options.rank = job.rank;
  options.size = job.ranks;
  options.rails = absl::StrSplit(args.at(3), ',');
  options.plan = Plan::kSlice;
  options.policy = BalancePolicy::kShuffle;
  options.timeout = std::chrono::seconds(40);
  std::atomic<bool> failed = false;
  {
    ContextImpl context(std::make_shared<gloo::rendezvous::FileStore>(args.at(0)), options);
    context.add_engine("star", engine);
    context.join();
    engine.start(context, context.progress());
    std::vector<std::thread> threads;
    for (int t = 0; t < number(8); ++t) {
      threads.emplace_back([&, t] {
        try {
          Thread(job, context, engine, static_cast<uint32_t>(t)).run();
        } catch (const std::exception& error) {
          failed = true;
          print(absl::StrCat("{\"event\": \"error\", \"what\": \"", error.what(), "\"}"));
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    // When one connection ends, the star ends all of them; and recovery needs all ranks, so they
    // meet first.
    if (!failed) context.run(BarrierOptions(nullptr));
    engine.stop();
  }
  print(absl::StrCat("{\"event\": \"end\", \"sums\": ", engine.blocks(),
                     ", \"losses\": ", engine.losses(), "}"));
  return failed ? 1 : 0;
}

}  // namespace
}  // namespace nezha::star

int main(int argc, char** argv) {
  const std::vector<std::string> args(argv + 1, argv + argc);
  if (args.size() == 4 && args[0] == "star") {
    return nezha::star::serve(args[1], static_cast<uint16_t>(std::atoi(args[2].c_str())),
                              std::atoi(args[3].c_str()));
  }
  if (args.size() == 11 && args[0] == "rank") {
    try {
      return nezha::star::run_rank({args.begin() + 1, args.end()});
    } catch (const std::exception& error) {
      std::fprintf(stderr, "%s\n", error.what());
      return 1;
    }
  }
  std::fprintf(stderr, "usage: see the head of epoch_host.cc\n");
  return 2;
}
