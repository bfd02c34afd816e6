// SPDX-License-Identifier: Apache-2.0
#include "collectives/schedule_kind.h"

#include "absl/strings/str_cat.h"

namespace nezha {

std::string schedule_name(ScheduleKind kind) {
  switch (kind) {
    case ScheduleKind::kRing:
      return "ring";
    case ScheduleKind::kRecursiveDoubling:
      return "recursive-doubling";
    case ScheduleKind::kHalvingDoubling:
      return "halving-doubling";
    case ScheduleKind::kDirect:
      return "direct";
    case ScheduleKind::kBcube:
      return "bcube";
    case ScheduleKind::kBruck:
      return "bruck";
    case ScheduleKind::kPairwise:
      return "pairwise";
    case ScheduleKind::kDissemination:
      return "dissemination";
    case ScheduleKind::kTree:
      return "tree";
    case ScheduleKind::kOrderedTree:
      return "tree in the order of ranks";
    case ScheduleKind::kChain:
      return "chain";
  }
  return absl::StrCat("schedule ", static_cast<int>(kind));
}

std::string algorithm_name(Algorithm algorithm) {
  return algorithm == Algorithm::kAuto ? "auto" : schedule_name(schedule_kind(algorithm));
}

}  // namespace nezha
