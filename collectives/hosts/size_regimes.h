// SPDX-License-Identifier: Apache-2.0
// The sizes of allreduces, in bytes, at which something changes: how they are carried out, divided
// or measured. The sizes that depend on the number of ranks are in choice.cc.
#pragma once

#include <cstddef>

namespace nezha {

struct SizeRegimes {
  // Shorter allreduces have no plan. They use the fastest rail, because they end before a second
  // rail could help.
  static constexpr size_t kPlanned = 4 << 10;
  // Over stripes, the messages of shorter allreduces are not cut. If such an allreduce has a plan,
  // its messages alternate between the rails.
  static constexpr size_t kCut = 64 << 10;
  // Rank 0 is told of all allreduces from this size on. Of shorter ones it is told of a sample once
  // their class has run by its division for a while, because a report is expensive compared with
  // them.
  static constexpr size_t kAlwaysTold = 64 << 10;
  // Shorter allreduces use the algorithm with the fewest rounds, longer ones one that sends fewer
  // bytes.
  static constexpr size_t kFewestRounds = 32 << 10;
  // Below this size the network decides which of two algorithms is faster, so both are tried.
  static constexpr size_t kOneAlgorithm = 128 << 10;
  // If ranks begin an allreduce as soon as the one before is over, the balancer's timer takes the
  // mean over the ranks for a lane's time in a shorter one. In a longer one it scales the minimum.
  static constexpr size_t kLaneMeans = 128 << 10;
  // From this size on allreduces use stripes, which follow a change within an operation, or one
  // rail.
  static constexpr size_t kWhole = 8 << 20;
};

}  // namespace nezha
