// SPDX-License-Identifier: Apache-2.0
// The schedules by which the hosts carry a collective.
#pragma once

#include <cstdint>
#include <string>

#include "collectives/collective.h"
#include "nezha/algorithm.h"

namespace nezha {

// The ranks compare these numbers, so they never change meaning. Schedules that a user can ask for
// have the number of their Algorithm.
enum class ScheduleKind : uint8_t {
  kRing = 1,
  kRecursiveDoubling = 2,
  kHalvingDoubling = 3,
  kDirect = 4,
  kBcube = 5,
  kBruck = 6,
  kPairwise = 7,
  kDissemination = 64,
  kTree = 65,
  kOrderedTree = 66,
  kChain = 67,  // the ring of a broadcast or a reduce
};

// Returns the schedule that the algorithm names. kAuto names none.
constexpr ScheduleKind schedule_kind(Algorithm algorithm) {
  return static_cast<ScheduleKind>(algorithm);
}

// Returns the schedule by which the collective goes from neighbour to neighbour.
constexpr ScheduleKind around_ring(Collective collective) {
  const bool is_chain = collective == Collective::kBroadcast || collective == Collective::kReduce;
  return is_chain ? ScheduleKind::kChain : ScheduleKind::kRing;
}

// Returns the name: the spelling of the algorithm's option, if there is one. The number may come
// from a peer.
std::string schedule_name(ScheduleKind kind);
std::string algorithm_name(Algorithm algorithm);

}  // namespace nezha
