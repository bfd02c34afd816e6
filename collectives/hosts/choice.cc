#include "collectives/hosts/choice.h"

#include <algorithm>
#include <bit>
#include <iterator>
#include <limits>

namespace nezha {
namespace {

// The last size class, floor(log2(bytes)), that each algorithm serves. Beyond: what moves the
// fewest bytes.
struct Row {
  int most_ranks;
  int recursive_doubling;
  int halving_doubling;
};

// Where the algorithms cross, for 2 to 8 ranks over two rails of 1 Gbit/s: nezha-bench in
// tests/cluster/testbed, all algorithms in turn, medians of the p50 of five to seven runs, from
// 256 bytes to 16 MiB by factors of 2 to 4. (8 hosts on 4 cores that others used too: differences
// below a tenth are noise.) Beyond 8 ranks it is a guess. Direct and bcube were nowhere better than
// the best of these by more than that, but for bcube with 6 ranks and 256 KiB. Over the tree, 8 and
// 64 MiB took 0.95 to 1.3 times the ring's time: of 3 ranks by direct, of 4 by halving-doubling, on
// a busy machine.
constexpr Row kTable[] = {
    {2, 15, 15}, {3, 16, 16}, {4, 15, 18}, {7, 16, 17}, {std::numeric_limits<int>::max(), 16, 19}};

}  // namespace

Algorithm best_algorithm(int ranks, size_t bytes, bool over_tree) {
  const int size_class = static_cast<int>(std::bit_width(bytes)) - 1;
  const Row& row = *std::find_if(std::begin(kTable), std::end(kTable),
                                 [&](const Row& r) { return ranks <= r.most_ranks; });
  if (size_class <= row.recursive_doubling) return Algorithm::kRecursiveDoubling;
  if (size_class <= row.halving_doubling) return Algorithm::kHalvingDoubling;
  if (!over_tree) return Algorithm::kRing;
  const bool is_power_of_two = std::has_single_bit(static_cast<unsigned>(ranks));
  return is_power_of_two ? Algorithm::kHalvingDoubling : Algorithm::kDirect;
}

bool sums_over_tree(Algorithm algorithm) {
  return algorithm == Algorithm::kRecursiveDoubling || algorithm == Algorithm::kHalvingDoubling ||
         algorithm == Algorithm::kDirect;
}

// A message of S bytes takes a + S/B. Over the tree it is sent ceil(log2(n)) times, one after the
// other; along the ring once, behind n-2 first segments of s bytes: ceil(log2(n)) (a + S/B) against
// (n-1) a + (n-2) s/B + S/B. They cross where S (ceil(log2(n)) - 1) is about (n-2) c, where c = s +
// aB: measured, 16 to 32 KiB with 3 ranks, 16 to 24 with 4, and 20 (broadcast) to 36 (reduce) with
// 8. With 2 ranks the two are alike. (nezha-bench in tests/cluster/testbed, a barrier before each
// operation, two rails of 1 Gbit/s; medians of five runs.)
bool suits_tree(int ranks, size_t bytes) {
  constexpr size_t kHop = 20 << 10;
  const int hops = std::max(ranks - 2, 1);
  const int rounds = static_cast<int>(std::bit_width(static_cast<unsigned>(ranks - 1)));
  return bytes < kHop * static_cast<size_t>(hops) / static_cast<size_t>(std::max(rounds - 1, 1));
}

}  // namespace nezha
