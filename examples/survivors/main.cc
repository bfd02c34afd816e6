// SPDX-License-Identifier: Apache-2.0
// A job that continues after ranks were lost, as elastic training does. Every process adds its
// number to a total that all of them keep. When an operation fails, the remaining processes agree
// on who continues, join a new context, take the total from the process that has done the most
// steps, and continue with fewer ranks.
//
//   mkdir /tmp/meeting
//   for i in 0 1 2 3; do ./survivors $i 4 /tmp/meeting 1000 tcp:lo & done
//   sleep 5; kill -9 $!; wait
//
// Processes on several machines share the directory (NFS, say), a new one for each run.
#include <gloo/rendezvous/file_store.h>
#include <gloo/rendezvous/prefix_store.h>
#include <nezha/nezha.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <fstream>
#include <memory>
#include <sstream>
#include <stdexcept>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

namespace {

constexpr std::chrono::seconds kTimeout{10};  // the deadline of an operation

using Members = std::vector<int>;  // the processes of a context, by their numbers, in rank order

// ---- Agreement on who goes on ------------------------------------------------------------------

// Returns the proposal that all processes agree on, which is the first one. `own` is this process's
// number. The file system decides which proposal is the first, because it makes a link only if
// there is none yet. A Redis server can decide it by SETNX, and PyTorch's TCPStore by compare_set.
std::string agree(const std::string& path, const std::string& proposal, int own) {
  const std::string draft = path + "." + std::to_string(own);
  std::ofstream file(draft);
  if (!(file << proposal).flush()) throw std::runtime_error("cannot write " + draft);
  std::error_code error;
  std::filesystem::create_hard_link(draft, path, error);
  std::filesystem::remove(draft);
  if (error && error != std::errc::file_exists) {
    throw std::runtime_error("cannot make the link " + path + ": " + error.message());
  }
  std::ifstream decision(path);
  std::stringstream text;
  if (!(text << decision.rdbuf())) throw std::runtime_error("cannot read " + path);
  return text.str();
}

std::string path_of(const std::string& directory, int context) {
  return directory + "/members-" + std::to_string(context);
}

// Returns the members of context `number`. Processes may know of different losses. A lost process
// that is still in the list, because only others knew of its loss, makes this context fail, and is
// left out of the next one.
Members agree_on_members(const std::string& directory, int number, const Members& proposal,
                         int own) {
  std::string text;
  for (const int member : proposal) text += std::to_string(member) + " ";
  std::istringstream agreed(agree(path_of(directory, number), text, own));
  Members members;
  for (int member = 0; agreed >> member;) members.push_back(member);
  return members;
}

// Waits for the proposal of another process, for kTimeout at most. A process that has lost most of
// the others may itself be the one that is cut off, so the others may propose first. A process can
// notice the loss of only those that it has had connections to: one that is cut off before its
// first operations may notice too few losses to give way.
void let_others_propose(const std::string& directory, int number) {
  const auto end = std::chrono::steady_clock::now() + kTimeout;
  while (!std::filesystem::exists(path_of(directory, number)) &&
         std::chrono::steady_clock::now() < end) {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
}

Members without(const Members& members, const std::vector<int>& lost_ranks) {
  Members rest;
  for (size_t rank = 0; rank < members.size(); ++rank) {
    const bool is_lost = std::count(lost_ranks.begin(), lost_ranks.end(), rank) != 0;
    if (!is_lost) rest.push_back(members[rank]);
  }
  return rest;
}

// ---- The work ----------------------------------------------------------------------------------

struct State {
  int64_t step = 0;   // how many steps are done
  int64_t total = 0;  // the sum of the numbers of all processes that took part in them
};

class Worker {
 public:
  Worker(int number, std::string directory, int64_t steps, std::vector<std::string> rails)
      : number_(number),
        directory_(std::move(directory)),
        steps_(steps),
        rails_(std::move(rails)) {}

  // Works until all steps are done, in as many contexts as that takes. Returns the exit status.
  int run(int processes) {
    Members members;
    for (int member = 0; member < processes; ++member) members.push_back(member);
    for (int context = 0;; ++context) {
      members = agree_on_members(directory_, context, members, number_);
      if (std::count(members.begin(), members.end(), number_) == 0) {
        std::printf("process %d: the others go on without this one\n", number_);
        return 1;
      }
      try {
        run_context(context, members);
        std::printf("process %d: %lld steps are done, the total is %lld\n", number_,
                    static_cast<long long>(state_.step), static_cast<long long>(state_.total));
        return 0;
      } catch (const nezha::IoError& error) {
        std::printf("process %d: %s\n", number_, error.what());
        if (error.ranks().empty()) throw;  // no rank is lost: the next context would fail, too
        const Members rest = without(members, error.ranks());
        if (2 * rest.size() <= members.size()) let_others_propose(directory_, context + 1);
        members = rest;
      }
    }
  }

 private:
  // The context is destroyed before the next one is made.
  void run_context(int context_number, const Members& members) {
    nezha::ContextOptions options;
    options.rank =
        static_cast<int>(std::find(members.begin(), members.end(), number_) - members.begin());
    options.size = static_cast<int>(members.size());
    options.rails = rails_;
    options.timeout = kTimeout;
    // Each context has a prefix of its own, so that the records of earlier ones do not mislead it.
    gloo::rendezvous::FileStore files(directory_);
    auto store = std::make_shared<gloo::rendezvous::PrefixStore>(
        "context-" + std::to_string(context_number), files);
    auto context = nezha::Context::create(store, options);
    catch_up(context);
    std::printf("process %d: rank %d of %d, at work from step %lld on\n", number_, options.rank,
                options.size, static_cast<long long>(state_.step));
    while (state_.step < steps_) do_step(context);
    // No process ends before all have done the last step, because it may have to be done again.
    nezha::BarrierOptions barrier(context);
    nezha::barrier(barrier);
  }

  // A step that failed here may have completed elsewhere. All ranks take the state of the rank that
  // has done the most steps.
  void catch_up(const std::shared_ptr<nezha::Context>& context) {
    const int64_t size = context->size();
    int64_t furthest = state_.step * size + context->rank();
    nezha::AllreduceOptions allreduce(context);
    allreduce.setOutput(&furthest, 1);
    allreduce.setOperation(nezha::ReduceOperation::kMax);
    nezha::allreduce(allreduce);

    nezha::BroadcastOptions broadcast(context);
    broadcast.setRoot(static_cast<int>(furthest % size));
    State state = state_;
    broadcast.setOutput(reinterpret_cast<int64_t*>(&state), sizeof state / sizeof(int64_t));
    nezha::broadcast(broadcast);
    state_ = state;
  }

  void do_step(const std::shared_ptr<nezha::Context>& context) {
    int64_t sum = number_;
    nezha::AllreduceOptions allreduce(context);
    allreduce.setOutput(&sum, 1);
    nezha::allreduce(allreduce);
    state_.total += sum;
    ++state_.step;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));  // the computation
  }

  const int number_;
  const std::string directory_;
  const int64_t steps_;
  const std::vector<std::string> rails_;
  State state_;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc < 6) {
    std::fprintf(stderr, "usage: %s NUMBER PROCESSES SHARED-DIRECTORY STEPS RAIL...\n", argv[0]);
    return 2;
  }
  std::setvbuf(stdout, nullptr, _IOLBF, 0);  // a reader of a pipe sees each line at once
  try {
    return Worker(std::atoi(argv[1]), argv[3], std::atoll(argv[4]), {argv + 5, argv + argc})
        .run(std::atoi(argv[2]));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "process %s: %s\n", argv[1], error.what());
    return 1;
  }
}
