// SPDX-License-Identifier: Apache-2.0
// Operations in which memory runs out. Each trial is a job of its own, of processes on one host: in
// rank 0 one allocation fails once the context is there: that of number FIRST in the first trial,
// the STEPth after that one in the next, until an operation needs no more. Each rank's operations
// must be right or fail by an IoError before their deadline; nothing else may come of it, and no
// process may end otherwise.
//
//   cluster_exhaustion RANKS ALGORITHM ELEMENTS LEAST LASTING FIRST STEP
//
// LEAST: bytes; smaller allocations neither count nor fail. If it is not 0, rank 0's error must say
// why. LASTING: 0, one allocation fails; 1, so do all later ones. Exit status 0 if all is well.
#include <gloo/rendezvous/file_store.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <filesystem>
#include <memory>
#include <new>
#include <string>
#include <vector>

#include "nezha/allreduce.h"
#include "nezha/context.h"
#include "nezha/errors.h"

namespace {

// ---- The allocations ---------------------------------------------------------------------------

size_t least = 0;  // bytes
std::atomic<bool> counts{false};
std::atomic<long> count{0};
long fails_at = -1;
bool lasts = false;

void* allocate(size_t size, size_t alignment) {
  if (counts.load() && size >= least) {
    const long number = count.fetch_add(1);
    if (number == fails_at || (lasts && number > fails_at)) return nullptr;
  }
  const size_t whole = (size + alignment - 1) / alignment * alignment;
  return alignment <= alignof(std::max_align_t) ? std::malloc(size == 0 ? 1 : size)
                                                : std::aligned_alloc(alignment, whole);
}

void* allocate_or_throw(size_t size, size_t alignment) {
  void* memory = allocate(size, alignment);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

}  // namespace

[[gnu::noinline]] void* operator new(size_t size) { return allocate_or_throw(size, 1); }
[[gnu::noinline]] void* operator new[](size_t size) { return allocate_or_throw(size, 1); }
[[gnu::noinline]] void* operator new(size_t size, std::align_val_t alignment) {
  return allocate_or_throw(size, static_cast<size_t>(alignment));
}
[[gnu::noinline]] void* operator new(size_t size, const std::nothrow_t&) noexcept {
  return allocate(size, 1);
}
[[gnu::noinline]] void* operator new(size_t size, std::align_val_t alignment,
                                     const std::nothrow_t&) noexcept {
  return allocate(size, static_cast<size_t>(alignment));
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete[](void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, size_t) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete[](void* memory, size_t) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::align_val_t) noexcept {
  std::free(memory);
}
[[gnu::noinline]] void operator delete(void* memory, size_t, std::align_val_t) noexcept {
  std::free(memory);
}

namespace {

// ---- One rank ----------------------------------------------------------------------------------

struct Case {
  int ranks;
  nezha::Algorithm algorithm;
  size_t elements;
};

// The exit statuses of a rank's process.
enum Outcome { kRight = 0, kFailed = 1, kWrong = 2, kLate = 3, kOther = 4, kNoContext = 5 };
constexpr auto kDeadline = std::chrono::seconds(20);

void run_operations(const Case& test, const std::shared_ptr<nezha::Context>& context, int rank) {
  std::vector<float> values(test.elements);
  for (int i = 0; i < 3; ++i) {
    values.assign(values.size(), static_cast<float>(rank + i));
    nezha::AllreduceOptions options(context);
    options.setOutput(values.data(), values.size());
    options.setAlgorithm(test.algorithm);
    counts = rank == 0;  // the library's alone
    try {
      nezha::allreduce(options);
    } catch (...) {
      counts = false;
      throw;
    }
    counts = false;
    const int sum = test.ranks * (test.ranks - 1) / 2 + test.ranks * i;
    for (const float value : values) {
      if (value != static_cast<float>(sum)) std::_Exit(kWrong);
    }
  }
}

// `report` gets how many allocations there were.
int run_rank(const Case& test, int rank, const std::string& folder, long fails, int report) {
  std::shared_ptr<nezha::Context> context;
  try {
    nezha::ContextOptions options;
    options.rank = rank;
    options.size = test.ranks;
    options.rails = {"tcp:lo"};
    options.timeout = kDeadline;
    context =
        nezha::Context::create(std::make_shared<gloo::rendezvous::FileStore>(folder), options);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "rank %d: %s\n", rank, error.what());
    return kNoContext;
  }
  fails_at = fails;
  Outcome outcome = kRight;
  try {
    run_operations(test, context, rank);
  } catch (const nezha::TimeoutError&) {
    outcome = kLate;
  } catch (const nezha::IoError& error) {
    // The others may see no more of it than the process's end.
    const bool says_why = std::strstr(error.what(), "out of memory") != nullptr;
    outcome = says_why || rank != 0 || least == 0 ? kFailed : kOther;
    if (outcome == kOther) std::fprintf(stderr, "rank %d: %s\n", rank, error.what());
  } catch (const std::exception& error) {
    outcome = kOther;
    std::fprintf(stderr, "rank %d: %s\n", rank, error.what());
  }
  const long total = count;
  if (rank == 0 && write(report, &total, sizeof total) != sizeof total) return kOther;
  context.reset();
  return outcome;
}

// ---- Trials ------------------------------------------------------------------------------------

// Returns whether each rank ended as it may. `allocations` is set to the number that rank 0 made.
bool run_trial(const Case& test, long fails, long& allocations) {
  std::string folder = std::filesystem::temp_directory_path() / "nezha-exhaustion.XXXXXX";
  int report[2];
  if (mkdtemp(folder.data()) == nullptr || pipe(report) != 0) return false;
  std::vector<pid_t> children;
  for (int rank = 0; rank < test.ranks; ++rank) {
    const pid_t child = fork();
    if (child == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      std::_Exit(run_rank(test, rank, folder, fails, report[1]));
    }
    children.push_back(child);
  }
  close(report[1]);
  bool is_well = true;
  for (int rank = 0; rank < test.ranks; ++rank) {
    int status = 0;
    waitpid(children[static_cast<size_t>(rank)], &status, 0);
    if (WIFEXITED(status) && WEXITSTATUS(status) <= kFailed) continue;
    is_well = false;
    std::fprintf(stderr, "allocation %ld fails: rank %d ends with %s %d\n", fails, rank,
                 WIFSIGNALED(status) ? "signal" : "status",
                 WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
  }
  if (read(report[0], &allocations, sizeof allocations) != sizeof allocations) is_well = false;
  close(report[0]);
  std::filesystem::remove_all(folder);
  return is_well;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 8) return 2;
  const Case test{std::atoi(argv[1]), static_cast<nezha::Algorithm>(std::atoi(argv[2])),
                  static_cast<size_t>(std::atol(argv[3]))};
  least = static_cast<size_t>(std::atol(argv[4]));
  lasts = std::atoi(argv[5]) != 0;
  const long step = std::atol(argv[7]);
  bool is_well = true;
  long trials = 0;
  long fails = std::atol(argv[6]);
  // The last one comes to its end without that allocation.
  for (long allocations = fails + 1; allocations > fails - step; fails += step, ++trials) {
    is_well &= run_trial(test, fails, allocations);
  }
  std::printf("%ld trials\n", trials);
  return is_well ? 0 : 1;
}
