// SPDX-License-Identifier: Apache-2.0
// nezha-check: tests the networks of a job, and says in words what is wrong with them.
#include <unistd.h>

#include <cstdio>
#include <exception>
#include <memory>
#include <stdexcept>

#include "absl/strings/str_cat.h"
#include "bench/meeting/meeting.h"
#include "check/diagnosis.h"
#include "check/options.h"
#include "check/own_rails.h"
#include "check/pair_rounds.h"
#include "check/reach.h"
#include "check/report.h"
#include "check/server.h"
#include "common/command_line/command_line.h"
#include "common/standard_descriptors.h"

namespace nezha::check {
namespace {

constexpr Nanos kAddressPatience = 3 * kSecond;  // duplicate address detection takes two

[[noreturn]] void fail(const absl::Status& status) {
  throw std::runtime_error(std::string(status.message()));
}

// Shows one line on rank 0's terminal. Each line is written over the one before.
class Progress {
 public:
  explicit Progress(const Options& options)
      : is_shown_(options.rank == 0 && isatty(STDERR_FILENO) == 1) {}
  ~Progress() { say(""); }
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void say(const std::string& what) const {
    if (is_shown_) std::fprintf(stderr, "\r\033[K%s", what.c_str());
  }

 private:
  bool is_shown_;
};

// Returns the ranks' facts. Throws if a rank expects another number of ranks.
std::vector<RankFacts> gather_facts(const Options& options, const std::vector<OwnRail>& rails,
                                    bench::Meeting& meeting) {
  RankFacts own = describe_host();
  own.size = options.size;
  for (const OwnRail& rail : rails) own.rails.push_back(rail.end);
  std::vector<RankFacts> all;
  for (const std::string& text : meeting.gather("facts", encode(own))) {
    all.push_back(decode_facts(text));
    if (all.back().size == options.size) continue;
    throw std::runtime_error(absl::StrCat("the ranks' command lines differ: --size is ",
                                          options.size, " here and ", all.back().size, " at rank ",
                                          all.size() - 1));
  }
  return all;
}

// Does this rank's part of the tests. Only rank 0's evidence has the paths.
Evidence measure(const Options& options, const WantedRails& wanted, bench::Meeting& meeting) {
  const Progress progress(options);
  auto rails = own_rails(wanted, now() + kAddressPatience);
  if (!rails.ok()) fail(rails.status());
  const auto ports = PortRange::parse(options.ports).value_or(PortRange());
  const auto server = Server::create(*rails, ports);
  if (!server.ok()) fail(server.status());

  progress.say(absl::StrCat("waiting for ", options.size, " ranks"));
  Evidence evidence;
  evidence.ranks = gather_facts(options, *rails, meeting);
  const auto token = UniqueId::parse(meeting.of_rank_0("token", {UniqueId::random().str()})[0]);
  if (!token.ok()) fail(token.status());
  const absl::Status started = (*server)->start(options.rank, options.size, *token);
  if (!started.ok()) fail(started);
  // A server that has not started would let its peers wait for a welcome.
  meeting.gather("listening", "");

  progress.say("connecting all pairs of ranks");
  const auto reaches = reach_all(*rails, options.rank, *token, evidence.ranks);
  const auto patience_to_reach =
      options.timeout + std::chrono::milliseconds(most_reach_time(evidence.ranks) / kMillisecond);
  int rank = 0;
  for (const std::string& text : meeting.gather("reaches", encode(reaches), patience_to_reach)) {
    evidence.reaches.push_back(decode_reaches(text, rank++, evidence.ranks));
  }
  const auto tell = [&](size_t round, size_t rounds) {
    progress.say(absl::StrCat("measuring pairs of ranks, round ", round + 1, " of ", rounds));
  };
  std::vector<std::shared_ptr<::gloo::rendezvous::Store>> stores;
  const Rounds rounds{options.rank,
                      *token,
                      *rails,
                      evidence,
                      schedule_of(evidence.ranks),
                      options.ports,
                      patience(evidence.ranks, options.timeout),
                      tell,
                      stores};
  measure_pairs(rounds, meeting);
  // Others may still measure with this rank, until rank 0 has all paths.
  if (options.rank == 0) {
    evidence.paths = gather_paths(rounds, meeting);
    meeting.publish("measured", "");
  } else {
    meeting.read("measured", 0, rounds.patience);
  }
  return evidence;
}

// Tests the networks and prints the report on rank 0. Returns the exit status, which is the same on
// all ranks.
int check(const Options& options, const WantedRails& wanted, bench::Meeting& meeting) {
  const Evidence evidence = measure(options, wanted, meeting);
  if (options.rank != 0) return meeting.read("verdict", 0) == "well" ? 0 : 1;
  const std::vector<Finding> findings = diagnose(evidence);
  const std::string report =
      options.json ? json_report(evidence, findings) : text_report(evidence, findings);
  if (std::fputs(report.c_str(), stdout) < 0 || std::fflush(stdout) != 0) {
    throw std::runtime_error("the report could not be written to standard output");
  }
  // The other ranks fail with this one if the report cannot be written.
  meeting.publish("verdict", findings.empty() ? "well" : "faults");
  return findings.empty() ? 0 : 1;
}

int meet_and_check(const Options& options) {
  bench::Meeting meeting(options, "nezha-check");
  try {
    const auto wanted = wanted_rails(options.rails);
    if (absl::IsInvalidArgument(wanted.status())) {
      throw UsageError(std::string(wanted.status().message()));
    }
    if (!wanted.ok()) fail(wanted.status());
    for (const std::string& rail : wanted->skipped) {
      if (options.rank != 0) break;
      std::fprintf(stderr, "nezha-check: %s is a switch's rail and is not tested\n", rail.c_str());
    }
    const int status = check(options, *wanted, meeting);
    meeting.leave();
    return status;
  } catch (const std::exception& error) {
    meeting.tell_failure(absl::StrCat("rank ", options.rank, ": ", error.what()));
    throw;
  }
}

int run(int argc, char** argv) {
  std::optional<Options> options;
  try {
    options = parse_options(argc, argv);
    if (!options) return std::fflush(stdout) == 0 ? 0 : 1;
    return meet_and_check(*options);
  } catch (const UsageError& error) {
    return refuse_usage("nezha-check", error);
  } catch (const std::exception& error) {
    const std::string who =
        options ? absl::StrCat("rank ", options->rank, " of ", options->size, ": ") : "";
    std::fprintf(stderr, "nezha-check: %s%s\n", who.c_str(), error.what());
    return 1;
  }
}

}  // namespace
}  // namespace nezha::check

int main(int argc, char** argv) {
  nezha::occupy_standard_descriptors();
  return nezha::check::run(argc, argv);
}
