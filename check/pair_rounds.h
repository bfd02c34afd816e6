// SPDX-License-Identifier: Apache-2.0
// The measurements of pairs of ranks, in rounds.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "bench/meeting/meeting.h"
#include "check/connection.h"
#include "check/measurement.h"
#include "check/own_rails.h"
#include "check/schedule.h"

namespace nezha::check {

// The things that a rank needs to take part in the measurements.
struct Rounds {
  int rank = 0;
  UniqueId token;
  const std::vector<OwnRail>& rails;
  const Evidence& evidence;  // the paths are not there yet
  std::vector<Round> schedule;
  std::string ports;                   // where this rank is reached
  std::chrono::milliseconds patience;  // the limit of one wait
  std::function<void(size_t round, size_t rounds)> progress;
  // The stores of the contexts that this rank has made: other ranks may still read why they failed.
  std::vector<std::shared_ptr<::gloo::rendezvous::Store>>& stores;
};

// Returns the schedule of these ranks.
std::vector<Round> schedule_of(const std::vector<RankFacts>& ranks);

// Measures with each peer when the turn of their pair has come, and publishes the paths. The lower
// rank measures the rails by which it has reached the higher one. Then the higher rank measures the
// rails by which only it has reached the lower one. The other rank's Server does its part. For
// rails of other kinds than tcp by which the lower rank has reached the higher one, both ranks
// measure by the library's links. Throws if a rank that it waits for ends.
void measure_pairs(const Rounds& rounds, bench::Meeting& meeting);

// Returns what all ranks have measured. Waits for the last of them.
std::vector<Path> gather_paths(const Rounds& rounds, bench::Meeting& meeting);

// Returns the longest time that a rank waits for another one's measurement of a pair: the timeout,
// and the time that a pair takes at most. Ranks keep pace with the peers that they measure with, so
// the wait is not for all rounds.
std::chrono::milliseconds patience(const std::vector<RankFacts>& ranks,
                                   std::chrono::milliseconds timeout);

}  // namespace nezha::check
