// SPDX-License-Identifier: Apache-2.0
/// The algorithms of the collectives.
#pragma once

#include <cstdint>

namespace nezha {

/// How a collective uses point-to-point connections. Each algorithm works for any number of ranks.
/// The setAlgorithm of a collective's options, or the collective itself, says which algorithms it
/// has. Numbers are part of the wire format and never change meaning.
enum class Algorithm : uint8_t {
  /// The algorithm is chosen by size and rank count. In an allreduce for which the load balancer
  /// learns (BalancePolicy::kModel), it may also be whichever of kRecursiveDoubling and
  /// kHalvingDoubling was faster; these two give the same bits. Either all ranks ask for kAuto, or
  /// all for the same other algorithm.
  kAuto = 0,
  /// The ring: messages go from neighbour to neighbour. It moves the fewest bytes, and is for large
  /// messages.
  kRing = 1,
  /// log2(ranks) exchanges of the whole message. It is for small messages.
  kRecursiveDoubling = 2,
  /// Reduce-scatter by halving, then allgather by doubling, with one peer at a time (Rabenseifner's
  /// algorithm). If the number of ranks is a power of two, it moves as few bytes as a ring, in
  /// 2·log2(ranks) steps. Otherwise, as many ranks as exceed a power of two first send all that
  /// they have to another rank. It is for medium messages. A reduce_scatter uses the first half
  /// only.
  kHalvingDoubling = 3,
  /// Each pair of ranks exchanges what one has for the other, all pairs at once. It moves as few
  /// bytes as a ring, in one step (in two in an allreduce), over connections of all ranks with all,
  /// or of all with the root. It is for few ranks, and for small messages.
  kDirect = 4,
  /// Reduce-scatter and allgather in groups of at most 4 ranks, or of a larger prime factor of the
  /// number of ranks. It is between kHalvingDoubling and kDirect. Gloo has it, too.
  kBcube = 5,
  /// ceil(log2(ranks)) exchanges, each of twice as many blocks as the one before. It is for small
  /// messages. (J. Bruck et al.: Efficient algorithms for all-to-all communications in multiport
  /// message-passing systems, 1997.)
  kBruck = 6,
  /// Exchanges with one peer after the other: in step k a rank sends to the k-th rank to its right,
  /// and receives from the k-th to its left. It is for large messages.
  kPairwise = 7,
  /// Messages along a binomial tree from or to the root. It is for small messages.
  kTree = 65,
};

}  // namespace nezha
