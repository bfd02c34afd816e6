// SPDX-License-Identifier: Apache-2.0
/// The algorithms of the collectives.
#pragma once

#include <cstdint>

namespace nezha {

/// How a collective goes over point-to-point connections. Any number of ranks will do for each.
/// Which of them a collective has is said at its options' setAlgorithm. Numbers are part of the
/// wire format and never change meaning.
enum class Algorithm : uint8_t {
  /// By size and rank count; and in an allreduce, where the load balancer learns
  /// (BalancePolicy::kModel), whichever of kRecursiveDoubling and kHalvingDoubling was faster,
  /// which
  /// have the same bits. All ranks ask for this, or all for the same other one.
  kAuto = 0,
  /// From neighbour to neighbour around a ring; moves the fewest bytes. For large messages.
  kRing = 1,
  /// log2(ranks) exchanges of the whole message. For small messages.
  kRecursiveDoubling = 2,
  /// Reduce-scatter by halving, allgather by doubling, with one peer at a time (Rabenseifner's
  /// algorithm): as few bytes as a ring in 2·log2(ranks) steps if the ranks are a power of two;
  /// other ranks send all they have to one of those first. For medium messages. A reduce_scatter
  /// takes its first half.
  kHalvingDoubling = 3,
  /// Between each pair of ranks what one has for the other, all at once: as few bytes as a ring in
  /// one step (an allreduce in two), over connections of all with all, or of all with the root. For
  /// few ranks, and for small messages.
  kDirect = 4,
  /// Reduce-scatter and allgather in groups of 4 or fewer: between the two above. Gloo has it, too.
  kBcube = 5,
  /// ceil(log2(ranks)) exchanges, each of twice as many blocks as the one before. For small
  /// messages. (J. Bruck et al.: Efficient algorithms for all-to-all communications in multiport
  /// message-passing systems, 1997.)
  kBruck = 6,
  /// With one peer after the other: in step k a rank sends to the k-th to its right, and receives
  /// from the k-th to its left. For large messages.
  kPairwise = 7,
  /// Along a binomial tree from or to the root. For small messages.
  kTree = 65,
};

}  // namespace nezha
