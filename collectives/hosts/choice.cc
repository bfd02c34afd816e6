// SPDX-License-Identifier: Apache-2.0
#include "collectives/hosts/choice.h"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "collectives/hosts/size_regimes.h"

namespace nezha {
namespace {

// The sizes at which one algorithm becomes faster than another were measured in the testbed
// (docs/performance.md).

// From this size on, the ring is faster than halving-doubling, because it sends the fewest bytes
// and passes them on as they arrive. Below it, halving-doubling is faster, because it has fewer
// rounds. If the number of ranks is no power of two, halving-doubling sends twice as much, because
// of folding, so the ring is faster from a smaller size on.
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
// c was measured (docs/performance.md). With 2 ranks the two are alike.
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
