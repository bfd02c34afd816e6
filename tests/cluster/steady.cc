// SPDX-License-Identifier: Apache-2.0
// Counts the memory allocations of operations in a job that has run for a while. The ranks are
// processes on one host, which repeat one collective.
//
//   cluster_steady RANKS COLLECTIVE ALGORITHM ELEMENTS RAILS
//
// COLLECTIVE: allreduce, broadcast, reduce, allgather or barrier. ALGORITHM: its number. ELEMENTS:
// the number of floats in the vector. RAILS: separated by commas. Prints a line for each place in
// the library that allocated: the rank, the number of allocations, the number of operations in
// which they happened, and the calls that led there, innermost first, as FILE+OFFSET for addr2line.
// Exit status 0 if all operations were right.
#include <dlfcn.h>
#include <execinfo.h>
#include <gloo/rendezvous/file_store.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iostream>
#include <memory>
#include <mutex>
#include <new>
#include <sstream>
#include <string>
#include <vector>

#include "nezha/allgather.h"
#include "nezha/allreduce.h"
#include "nezha/barrier.h"
#include "nezha/broadcast.h"
#include "nezha/context.h"
#include "nezha/reduce.h"
#include "operator_new.h"

namespace {

// ---- The allocations ---------------------------------------------------------------------------

constexpr size_t kDepth = 24;
constexpr size_t kPlaces = 256;  // the last one also counts all further places

struct Place {
  std::array<void*, kDepth> calls{};
  int depth = 0;
  long count = 0;
};

std::atomic<bool> counts{false};
std::mutex mutex;
std::array<Place, kPlaces> places;
size_t known = 0;

void note() {
  if (!counts.load(std::memory_order_relaxed)) return;
  Place here;
  here.depth = backtrace(here.calls.data(), kDepth);
  const std::lock_guard lock(mutex);
  size_t at = 0;
  while (at < known && places[at].calls != here.calls) ++at;
  at = std::min(at, kPlaces - 1);
  if (at == known) places[known++] = here;
  ++places[at].count;
}

bool may_allocate(size_t /*size*/) {
  note();
  return true;
}

// ---- One rank ----------------------------------------------------------------------------------

struct Case {
  int ranks;
  std::string collective;
  nezha::Algorithm algorithm;
  size_t elements;
  std::vector<std::string> rails;
};

// The number of operations before counting begins, which is also the number of counted ones. Short
// operations run until nothing more is learned about the rails. They also have to outweigh one
// growth of what is in flight: where the ranks send by different rails, acknowledgements wait, and
// some 2000 messages of 4 bytes may be unacknowledged, each with six allocations.
int operations_of(const Case& test) {
  constexpr size_t kShort = 1 << 14;
  return test.elements < kShort ? 40000 : test.elements == kShort ? 3000 : 200;
}

// One operation; all inputs are ones.
class Operation {
 public:
  Operation(const Case& test, const std::shared_ptr<nezha::Context>& context)
      : input_(test.elements, 1.0F), output_(test.elements), collective_(test.collective) {
    if (collective_ == "allreduce") {
      auto options = std::make_shared<nezha::AllreduceOptions>(context);
      options->setInput(input_.data(), input_.size());
      options->setOutput(output_.data(), output_.size());
      options->setAlgorithm(test.algorithm);
      run_ = [options] { nezha::allreduce(*options); };
      expected_ = static_cast<float>(test.ranks);
    } else if (collective_ == "broadcast") {
      auto options = std::make_shared<nezha::BroadcastOptions>(context);
      options->setRoot(0);
      if (context->rank() == 0) options->setInput(input_.data(), input_.size());
      options->setOutput(output_.data(), output_.size());
      options->setAlgorithm(test.algorithm);
      run_ = [options] { nezha::broadcast(*options); };
    } else if (collective_ == "reduce") {
      auto options = std::make_shared<nezha::ReduceOptions>(context);
      options->setRoot(0);
      options->setInput(input_.data(), input_.size());
      options->setOutput(output_.data(), output_.size());
      options->setAlgorithm(test.algorithm);
      run_ = [options] { nezha::reduce(*options); };
      expected_ = context->rank() == 0 ? static_cast<float>(test.ranks) : 0;
    } else if (collective_ == "allgather") {
      auto options = std::make_shared<nezha::AllgatherOptions>(context);
      input_.resize(input_.size() / static_cast<size_t>(test.ranks));
      options->setInput(input_.data(), input_.size());
      options->setOutput(output_.data(), output_.size());
      options->setAlgorithm(test.algorithm);
      run_ = [options] { nezha::allgather(*options); };
    } else {
      auto options = std::make_shared<nezha::BarrierOptions>(context);
      output_.clear();
      run_ = [options] { nezha::barrier(*options); };
    }
  }

  // Returns whether the result is right.
  bool run() {
    std::fill(output_.begin(), output_.end(), 0.0F);
    run_();
    return std::all_of(output_.begin(), output_.end(),
                       [this](float value) { return value == expected_; });
  }

 private:
  std::vector<float> input_, output_;
  std::string collective_;
  std::function<void()> run_;
  float expected_ = 1;
};

std::string name_of(void* address) {
  Dl_info info{};
  std::ostringstream text;
  if (dladdr(address, &info) == 0 || info.dli_fname == nullptr) return "?+0";
  // The call is just before the return address.
  text << info.dli_fname << "+0x" << std::hex
       << static_cast<char*>(address) - static_cast<char*>(info.dli_fbase) - 1;
  return text.str();
}

void report(int rank, int operations, const std::string& file) {
  std::ostringstream text;
  for (size_t i = 0; i < known; ++i) {
    text << rank << ' ' << places[i].count << ' ' << operations;
    for (int call = 0; call < places[i].depth; ++call) {
      text << ' ' << name_of(places[i].calls[static_cast<size_t>(call)]);
    }
    text << '\n';
  }
  std::ofstream(file) << text.str();
}

std::string report_of(const std::string& folder, int rank) {
  return folder + "/report-" + std::to_string(rank);
}

int run_rank(const Case& test, int rank, const std::string& folder) {
  try {
    nezha::ContextOptions options;
    options.rank = rank;
    options.size = test.ranks;
    options.rails = test.rails;
    const auto context =
        nezha::Context::create(std::make_shared<gloo::rendezvous::FileStore>(folder), options);
    Operation operation(test, context);
    std::array<void*, 1> ignored{};
    backtrace(ignored.data(), 1);  // the first call allocates memory
    bool is_right = true;
    const int operations = operations_of(test);
    for (int i = 0; i < operations; ++i) is_right &= operation.run();
    counts = true;
    for (int i = 0; i < operations; ++i) is_right &= operation.run();
    counts = false;
    report(rank, operations, report_of(folder, rank));
    nezha::barrier(nezha::BarrierOptions(context));
    return is_right ? 0 : 1;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "rank %d: %s\n", rank, error.what());
    return 1;
  }
}

int run_job(const Case& test) {
  std::string folder = std::filesystem::temp_directory_path() / "nezha-steady.XXXXXX";
  if (mkdtemp(folder.data()) == nullptr) {
    std::perror("steady: a folder for the store");
    return 1;
  }
  std::vector<pid_t> children;
  for (int rank = 0; rank < test.ranks; ++rank) {
    const pid_t child = fork();
    if (child == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      std::_Exit(run_rank(test, rank, folder));
    }
    children.push_back(child);
  }
  bool is_well = true;
  for (const pid_t child : children) {
    int status = 0;
    waitpid(child, &status, 0);
    is_well &= status == 0;
  }
  for (int rank = 0; rank < test.ranks; ++rank) {
    std::ifstream file(report_of(folder, rank));
    for (std::string line; std::getline(file, line);) std::cout << line << '\n';
  }
  std::filesystem::remove_all(folder);
  return is_well ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 6) return 2;
  Case test{std::atoi(argv[1]),
            argv[2],
            static_cast<nezha::Algorithm>(std::atoi(argv[3])),
            static_cast<size_t>(std::atol(argv[4])),
            {}};
  std::istringstream rails(argv[5]);
  for (std::string rail; std::getline(rails, rail, ',');) test.rails.push_back(rail);
  return run_job(test);
}
