// SPDX-License-Identifier: Apache-2.0
#include "collectives/hosts/choice.h"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "collectives/hosts/size_regimes.h"

namespace nezha {
namespace {

// The sizes at which the algorithms cross were measured with nezha-bench in the testbed: 2 to 12
// ranks over one rail and two rails of 1 Gbit/s (up to 4 ranks), 500 and 200 Mbit/s (so that the
// cores were not the limit), algorithms in turn, medians of three to five runs. At 16 KiB recursive
// doubling took 0.6 to 1.1 times as long as halving-doubling, at 32 KiB 0.9 to 1.4 times
// (SizeRegimes::kFewestRounds).

// From this size on, the fewest bytes matter most, pipelined. Below it, halving-doubling has fewer
// rounds. With 2, 4 and 8 ranks, by slices and over one rail, it is better up to this size (by
// stripes over unequal rails it takes up to a seventh longer). With other numbers of ranks it sends
// twice as much, because of folding, and takes longer than the ring from 32 KiB on with 3, 5 and 6
// ranks, and from 64 KiB on with 7 to 12. With 6 to 12 ranks, bcube was better than both by a fifth
// about where they cross.
size_t ring_from(int ranks) {
  const auto n = static_cast<size_t>(ranks);
  const size_t from = std::bit_ceil(n * (5 << 10));
  return std::has_single_bit(n) ? std::max<size_t>(512 << 10, from) : from;
}

}  // namespace

Algorithm best_algorithm(int ranks, size_t bytes, bool over_tree) {
  if (bytes < SizeRegimes::kFewestRounds) return Algorithm::kRecursiveDoubling;
  if (bytes < ring_from(ranks)) return Algorithm::kHalvingDoubling;
  if (!over_tree) return Algorithm::kRing;
  // Over the tree, 8 and 64 MiB took 0.95 to 1.3 times as long as over the ring: 3 ranks by direct,
  // 4 ranks by halving-doubling, on a busy machine.
  const bool is_power_of_two = std::has_single_bit(static_cast<unsigned>(ranks));
  return is_power_of_two ? Algorithm::kHalvingDoubling : Algorithm::kDirect;
}

// With 4 ranks recursive doubling sends half a message more, and halving-doubling has two rounds
// more. They cross at four rounds' worth of bytes, which is 6 KiB on rails of 1 Gbit/s, and 64 KiB
// where only the host limits a rail. With 2 or 3 ranks neither sends more than the other.
Algorithm rival(int ranks, size_t bytes) {
  const bool is_open = bytes >= SizeRegimes::kPlanned && bytes < SizeRegimes::kOneAlgorithm;
  if (ranks <= 3 || !is_open) return Algorithm::kAuto;
  switch (best_algorithm(ranks, bytes, /*over_tree=*/false)) {
    case Algorithm::kRecursiveDoubling:
      return Algorithm::kHalvingDoubling;
    case Algorithm::kHalvingDoubling:
      return Algorithm::kRecursiveDoubling;
    default:
      return Algorithm::kAuto;
  }
}

bool takes_turns(size_t bytes) {
  return bytes >= SizeRegimes::kPlanned && bytes < SizeRegimes::kCut;
}

// A turn follows the last one of the operation before, except that one turn is left out now and
// then. Otherwise each peer would always get the turns of the same one of two rails, and a rail
// that a peer wrongly takes for slow could never prove otherwise.
uint64_t first_turn(uint64_t ordinal, uint64_t sends) {
  constexpr uint64_t kLeavesOneOut = 64;  // operations
  return ordinal * sends + ordinal / kLeavesOneOut;
}

bool sums_over_tree(Algorithm algorithm) {
  return algorithm == Algorithm::kRecursiveDoubling || algorithm == Algorithm::kHalvingDoubling ||
         algorithm == Algorithm::kDirect;
}

// A message of S bytes takes a + S/B. A tree sends it ceil(log2(n)) times, one after the other. The
// ring sends it once, behind n-2 first segments of s bytes: ceil(log2(n)) (a + S/B) against (n-1) a
// + (n-2) s/B + S/B. They cross where S (ceil(log2(n)) - 1) is about (n-2) c, where c = s + aB.
// Measured crossings: 16 to 32 KiB with 3 ranks, 16 to 24 KiB with 4, and 20 (broadcast) to 36 KiB
// (reduce) with 8. With 2 ranks the two are alike. (nezha-bench in the testbed, a barrier before
// each operation, two rails of 1 Gbit/s; medians of five runs.)
bool suits_tree(int ranks, size_t bytes) {
  constexpr size_t kHop = 20 << 10;
  const int hops = std::max(ranks - 2, 1);
  const int rounds = static_cast<int>(std::bit_width(static_cast<unsigned>(ranks - 1)));
  return bytes < kHop * static_cast<size_t>(hops) / static_cast<size_t>(std::max(rounds - 1, 1));
}

// Each of the following functions compares two algorithms, by times that were measured with 4, 8
// and 16 ranks (docs/performance.md). The ring moves as many bytes as the other algorithm. It takes
// more rounds, and passes segments on as they arrive.

// The two cross between 4 and 16 KiB a rank with 4 and 8 ranks, and at 16 KiB with 16.
bool suits_bruck(int ranks, size_t bytes) {
  const auto size = static_cast<size_t>(ranks);
  return bytes < size * size * (1 << 10);
}

// With up to 8 ranks, direct messages took less time for blocks of up to 1 KiB, and more for blocks
// of 4 KiB. With 16 ranks and blocks of 64 bytes it was the other way round.
bool gather_suits_tree(int ranks, size_t bytes) {
  const bool is_tiny = ranks <= 8 && bytes <= static_cast<size_t>(ranks) * (1 << 10);
  return !is_tiny && suits_tree(ranks, bytes);
}

// The two cross between 4 and 16 KiB a rank.
Algorithm best_reduce_scatter(int ranks, size_t bytes, bool over_tree) {
  if (over_tree) return Algorithm::kDirect;
  const bool is_small = bytes < static_cast<size_t>(ranks) * (8 << 10);
  return is_small ? Algorithm::kHalvingDoubling : Algorithm::kRing;
}

// The two cross between 64 and 1024 bytes a block with 8 and 16 ranks. With 4 ranks Bruck's
// algorithm gains nothing.
bool suits_bruck_alltoall(int ranks, size_t bytes) {
  return ranks >= 8 && bytes <= static_cast<size_t>(ranks) * 256;
}

}  // namespace nezha
