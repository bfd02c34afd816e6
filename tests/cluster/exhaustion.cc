// SPDX-License-Identifier: Apache-2.0
// Operations that run out of memory. Each trial is a job of its own, whose processes run on one
// host. After rank 0 has created its context, one of its allocations fails: the first in the first
// trial, the second in the next, until an operation needs no more allocations. On each rank the
// operations must give the right result or fail with an IoError before their deadline. No process
// may end in another way.
//
//   cluster_exhaustion RANKS ALGORITHM ELEMENTS LEAST LASTING
//
// LEAST: smaller allocations (in bytes) are not counted and do not fail. If LEAST is not 0, the
// error of rank 0 must name the reason. LASTING: 0 if one allocation fails, 1 if all later ones
// fail, too. Exit status 0 if all trials are right.
#include <fcntl.h>
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
#include "operator_new.h"

namespace {

// ---- The allocations ---------------------------------------------------------------------------

size_t least = 0;  // bytes
std::atomic<bool> counts{false};
std::atomic<long> count{0};
long fails_at = -1;
bool lasts = false;

bool may_allocate(size_t size) {
  if (!counts.load() || size < least) return true;
  const long number = count.fetch_add(1);
  return number != fails_at && !(lasts && number > fails_at);
}

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
    counts = rank == 0;  // count only the library's allocations
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

// Writes the number of allocations to `report`.
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
    // Other ranks may only see that the process has ended.
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

// In most of a trial's time the ranks wait for one that has died, so many trials run at once.
constexpr int kAtOnce = 32;

// A running job.
struct Trial {
  long fails = 0;
  std::string folder;
  int report = -1;  // the read end of the pipe
  std::vector<pid_t> children;
};

Trial start_trial(const Case& test, long fails) {
  Trial trial;
  trial.fails = fails;
  trial.folder = std::filesystem::temp_directory_path() / "nezha-exhaustion.XXXXXX";
  int report[2];
  if (mkdtemp(trial.folder.data()) == nullptr || pipe2(report, O_CLOEXEC) != 0) {
    std::perror("exhaustion: a trial's folder and pipe");
    std::exit(2);
  }
  trial.report = report[0];
  for (int rank = 0; rank < test.ranks; ++rank) {
    const pid_t child = fork();
    if (child == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      std::_Exit(run_rank(test, rank, trial.folder, fails, report[1]));
    }
    trial.children.push_back(child);
  }
  close(report[1]);
  return trial;
}

// Returns whether each rank ended in an allowed way. Sets `allocations` to the number of rank 0.
bool finish_trial(const Trial& trial, long& allocations) {
  bool is_well = true;
  for (size_t rank = 0; rank < trial.children.size(); ++rank) {
    int status = 0;
    waitpid(trial.children[rank], &status, 0);
    if (WIFEXITED(status) && WEXITSTATUS(status) <= kFailed) continue;
    is_well = false;
    std::fprintf(stderr, "allocation %ld fails: rank %zu ends with %s %d\n", trial.fails, rank,
                 WIFSIGNALED(status) ? "signal" : "status",
                 WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
  }
  if (read(trial.report, &allocations, sizeof allocations) != sizeof allocations) is_well = false;
  close(trial.report);
  std::filesystem::remove_all(trial.folder);
  return is_well;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 6) return 2;
  const Case test{std::atoi(argv[1]), static_cast<nezha::Algorithm>(std::atoi(argv[2])),
                  static_cast<size_t>(std::atol(argv[3]))};
  least = static_cast<size_t>(std::atol(argv[4]));
  lasts = std::atoi(argv[5]) != 0;
  bool is_well = true;
  long trials = 0;
  // In the last trial, rank 0 makes fewer allocations than the one that should fail.
  for (bool is_over = false; !is_over;) {
    std::vector<Trial> batch;
    for (int i = 0; i < kAtOnce; ++i) batch.push_back(start_trial(test, trials++));
    for (const Trial& trial : batch) {
      long allocations = 0;
      is_well &= finish_trial(trial, allocations);
      is_over |= allocations <= trial.fails;
    }
  }
  std::printf("%ld trials\n", trials);
  return is_well ? 0 : 1;
}
