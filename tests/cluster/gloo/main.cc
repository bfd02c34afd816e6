// SPDX-License-Identifier: Apache-2.0
// Uses Gloo as a program does, over Gloo's own tcp device or one that a library makes, and prints a
// line of JSON with the outcome of each case. The words of an outcome do not depend on the device,
// so the lines of two devices can be compared. options.cc lists the options.
//
// Events: "case" with its name, the outcomes of this process's ranks and the duration; load.cc
// describes the events of --load. Exit status: 0 whatever the outcomes are; 1 if the ranks lost
// each other; 2 a bad command line.
#include <gloo/rendezvous/file_store.h>
#include <gloo/rendezvous/hash_store.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <mutex>
#include <regex>
#include <thread>

#include "cluster/events.h"
#include "cluster/gloo/cases.h"
#include "cluster/gloo/options.h"
#include "cluster/gloo/outcome.h"
#include "cluster/gloo/rank.h"

namespace nezha::gloo_cases {
namespace {

using nezha::events::emit;
using nezha::events::json_string;
using nezha::events::member;

Cases chosen_cases(const Options& options) {
  Cases all;
  add_collectives(options, all);
  add_algorithms(options, all);
  add_unbound(options, all);
  add_any_source(options, all);
  add_waits(options, all);
  add_bound(options, all);
  add_contexts(options, all);
  add_concurrent(options, all);
  const std::regex pattern(options.cases);
  Cases chosen;
  for (auto& each : all) {
    if (std::regex_search(each.name, pattern)) chosen.push_back(std::move(each));
  }
  return chosen;
}

// Collects the outcomes of a case from the ranks of this process, and prints it when it has all of
// them.
class Report {
 public:
  explicit Report(int ranks) : ranks_(ranks) {}

  void add(const std::string& name, int index, const std::string& outcome) {
    const std::lock_guard<std::mutex> lock(mutex_);
    auto& outcomes = outcomes_[name];
    outcomes[index] = outcome;
    if (outcomes.size() < static_cast<size_t>(ranks_)) return;
    std::string list;
    for (const auto& [of, text] : outcomes) list += (list.empty() ? "" : ",") + json_string(text);
    emit("case", member("name", json_string(name)) + member("outcomes", "[" + list + "]") +
                     member("seconds", nezha::events::seconds_since(last_)));
    last_ = nezha::events::Clock::now();
    outcomes_.erase(name);
  }

 private:
  const int ranks_;
  std::mutex mutex_;
  nezha::events::Clock::time_point last_ = nezha::events::Clock::now();
  std::map<std::string, std::map<int, std::string>> outcomes_;
};

std::string run_case(const Case& one, Rank& rank) {
  std::string thrown;
  try {
    one.run(rank);
  } catch (const std::exception& error) {
    thrown = name_of(error);
  }
  return rank.finish(thrown);
}

int run_rank(int number, const Options& options, const Cases& cases, gloo::rendezvous::Store& store,
             Report& report) {
  try {
    Rank rank(number, options, store);
    if (!options.load.empty()) return run_load(rank);
    for (const auto& one : cases) report.add(one.name, number, run_case(one, rank));
    return 0;
  } catch (const std::exception& error) {
    emit("lost", member("what", json_string(error.what())));
    std::exit(1);  // The other threads wait for this one.
  }
}

int run_threads(const Options& options, const Cases& cases) {
  gloo::rendezvous::HashStore store;
  Report report(options.threads);
  std::vector<std::thread> threads;
  for (int number = 0; number < options.threads; ++number) {
    threads.emplace_back([&, number] { run_rank(number, options, cases, store, report); });
  }
  for (auto& thread : threads) thread.join();
  return 0;
}

int run(const Options& options) {
  const Cases cases = chosen_cases(options);
  if (options.list) {
    for (const auto& one : cases) std::printf("%s\n", one.name.c_str());
    return 0;
  }
  if (options.threads > 0) return run_threads(options, cases);
  gloo::rendezvous::FileStore store(options.store);
  Report report(1);
  return run_rank(options.rank, options, cases, store, report);
}

}  // namespace
}  // namespace nezha::gloo_cases

int main(int argc, char** argv) {
  std::signal(SIGPIPE, SIG_IGN);  // Gloo's own device may write to closed connections.
  return nezha::gloo_cases::run(nezha::gloo_cases::parse(argc, argv));
}
