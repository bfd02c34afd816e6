// SPDX-License-Identifier: Apache-2.0
// One process of an elastic job, which uses several contexts in turn, as elastic training does. A
// file names the members of each context. When a member dies or leaves, the operations of the
// others fail; they destroy the context and create the next one with the members that the next file
// names.
//
// `elastic FOLDER NAME FIRST RAIL,...`: the process is called NAME and begins with context number
// FIRST. With KEEP=1 in the environment, the process also has a context of its own, so that what
// its contexts share outlives each of them. The test creates these files in FOLDER by renaming:
//   plan-K   the K-th context: "MS NAME..." is the deadline of an operation and the members in the
//            order of their ranks. A process that is none of them ends
//   move-K   its members agree to build the next one
//   leave-NAME  the process leaves and tells nobody: "destroy" to destroy its context and end,
//            "exit" to call exit()
//
// Events: "joined" and "ran" (an operation) for a context, "error", "closed" (with the seconds that
// the destructor took), and at the end "left", with the numbers of threads and descriptors that
// were not released.
#include <gloo/rendezvous/file_store.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "cluster/events.h"
#include "nezha/allreduce.h"
#include "nezha/context.h"
#include "nezha/errors.h"

namespace {

namespace fs = std::filesystem;
using nezha::events::Clock;
using nezha::events::emit;
using nezha::events::error_members;
using nezha::events::member;
using nezha::events::seconds_since;
using std::chrono::milliseconds;

constexpr milliseconds kPatience{30'000};

std::optional<std::string> content(const std::string& path) {
  std::ifstream file(path);
  if (!file) return std::nullopt;
  return std::string(std::istreambuf_iterator<char>(file), {});
}

std::string await_content(const std::string& path) {
  const auto limit = Clock::now() + kPatience;
  for (;;) {
    if (auto text = content(path)) return *std::move(text);
    if (Clock::now() > limit) throw std::runtime_error("there never was " + path);
    std::this_thread::sleep_for(milliseconds(2));
  }
}

ptrdiff_t entries(const std::string& folder) {
  return std::distance(fs::directory_iterator(folder), fs::directory_iterator());
}

// The kernel resources of this process.
struct Means {
  ptrdiff_t threads = entries("/proc/self/task");
  ptrdiff_t descriptors = entries("/proc/self/fd");

  friend bool operator==(const Means&, const Means&) = default;
};

class Elastic {
 public:
  Elastic(std::string folder, std::string name, const std::string& rails)
      : folder_(std::move(folder)), name_(std::move(name)) {
    std::istringstream stream(rails);
    for (std::string rail; std::getline(stream, rail, ',');) options_.rails.push_back(rail);
    options_.timeout = kPatience;
    if (std::getenv("KEEP") == nullptr) return;
    nezha::ContextOptions alone = options_;
    alone.rank = 0;
    alone.size = 1;
    kept_ = nezha::Context::create(store("alone-" + name_), alone);
  }

  void run(int first) {
    const Means before;
    bool goes_on = true;
    for (int context = first; goes_on; ++context) goes_on = run_context(context);
    // If there is another context, connections stay until the process sees that their other end is
    // gone.
    Means after;
    const auto limit = Clock::now() + kPatience;
    while (!(after == before) && Clock::now() < limit) {
      std::this_thread::sleep_for(milliseconds(2));
      after = Means();
    }
    emit("left",
         member("threads", static_cast<double>(after.threads - before.threads)) +
             member("descriptors", static_cast<double>(after.descriptors - before.descriptors)));
  }

 private:
  std::shared_ptr<gloo::rendezvous::FileStore> store(const std::string& name) const {
    const std::string folder = folder_ + "/" + name;
    fs::create_directory(folder);
    return std::make_shared<gloo::rendezvous::FileStore>(folder);
  }

  // Returns false if this context was the last one.
  bool run_context(int number) {
    const std::string suffix = std::to_string(number);
    std::istringstream plan(await_content(folder_ + "/plan-" + suffix));
    if (!read(plan)) return false;
    nezha::ContextOptions options = options_;
    options.rank = rank_;
    options.size = size_;
    auto context = nezha::Context::create(store("store-" + suffix), options);
    const std::string of = member("context", number);
    emit("joined", of);
    bool goes_on = true;
    const auto start = Clock::now();
    call_ = start;
    try {
      goes_on = run_operations(context, folder_ + "/move-" + suffix, of);
    } catch (const nezha::IoError& error) {
      emit("error", of + error_members(error) + member("seconds", seconds_since(call_)));
    }
    const auto end = Clock::now();
    context.reset();
    emit("closed", of + member("seconds", seconds_since(end)));
    return goes_on;
  }

  // Returns false if this process is not a member.
  bool read(std::istream& plan) {
    int ms = 0;
    plan >> ms;
    timeout_ = milliseconds(ms);
    size_ = 0;
    rank_ = -1;
    for (std::string name; plan >> name; ++size_) {
      if (name == name_) rank_ = size_;
    }
    return rank_ >= 0;
  }

  // Runs operations until the members agree to move on (true), or this process must leave (false).
  bool run_operations(const std::shared_ptr<nezha::Context>& context, const std::string& move,
                      const std::string& of) {
    for (int i = 0;; ++i) {
      const float moves = rank_ == 0 && fs::exists(move) ? 1 : 0;
      const size_t elements = i % 2 == 0 ? 100 : 30'000;
      std::vector<float> vector(elements, static_cast<float>(rank_ + i % 1000));
      vector.front() = moves;
      nezha::AllreduceOptions options(context);
      options.setOutput(vector.data(), elements);
      options.setTimeout(timeout_);
      call_ = Clock::now();
      nezha::allreduce(options);
      const auto ranks = static_cast<float>(size_);
      const float sum = ranks * (ranks - 1) / 2 + ranks * static_cast<float>(i % 1000);
      for (size_t k = 1; k < elements; ++k) {
        if (vector[k] != sum) throw std::runtime_error("a wrong sum");
      }
      if (i == 1) emit("ran", of);
      if (vector.front() != 0) return true;
      const auto leave = content(folder_ + "/leave-" + name_);
      if (leave == "exit") std::exit(0);
      if (leave == "destroy") return false;
    }
  }

  std::string folder_;
  std::string name_;
  nezha::ContextOptions options_;
  std::shared_ptr<nezha::Context> kept_;
  milliseconds timeout_{0};
  int rank_ = 0;
  int size_ = 0;
  Clock::time_point call_;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc != 5) return 2;
  try {
    Elastic(argv[1], argv[2], argv[4]).run(std::atoi(argv[3]));
    return 0;
  } catch (const std::exception& error) {
    emit("error", error_members(error));
    return 1;
  }
}
