// SPDX-License-Identifier: Apache-2.0
// The table of the collectives. A row says what a collective is.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace nezha {

// Numbers are part of the wire format and never change meaning.
enum class Collective : uint8_t {
  kAllreduce = 1,
  kReduce = 2,
  kBroadcast = 3,
  kBarrier = 4,
  kAllgather = 5,
  kReduceScatter = 6,
  kAlltoall = 7,
  kAlltoallv = 8,
  kGather = 9,
  kGatherv = 10,
  kScatter = 11,
  kScatterv = 12,
};

struct CollectiveTraits {
  Collective collective;
  const char* name;
  // The word between the name and the root, as in "reduce to rank 2". It is null if the collective
  // has no root.
  const char* to_root = nullptr;
  bool reduces = false;
  bool has_elements = true;
  // The vector is made of a block for each rank.
  bool has_blocks = false;
  // A rank contributes, or gets, its own block and not the whole vector.
  bool takes_block = false;
  bool gives_block = false;
  // Blocks may have unequal lengths.
  bool has_counts = false;
  // The call of each rank tells how long the whole vector is.
  bool is_length_known = true;
};

// The rows are in the order of the numbers, from 1.
inline constexpr std::array kCollectives{
    CollectiveTraits{.collective = Collective::kAllreduce, .name = "allreduce", .reduces = true},
    CollectiveTraits{
        .collective = Collective::kReduce, .name = "reduce", .to_root = "to", .reduces = true},
    CollectiveTraits{.collective = Collective::kBroadcast, .name = "broadcast", .to_root = "from"},
    CollectiveTraits{.collective = Collective::kBarrier, .name = "barrier", .has_elements = false},
    CollectiveTraits{.collective = Collective::kAllgather,
                     .name = "allgather",
                     .has_blocks = true,
                     .takes_block = true,
                     .has_counts = true},
    CollectiveTraits{.collective = Collective::kReduceScatter,
                     .name = "reduce_scatter",
                     .reduces = true,
                     .has_blocks = true,
                     .gives_block = true,
                     .has_counts = true},
    CollectiveTraits{.collective = Collective::kAlltoall, .name = "alltoall", .has_blocks = true},
    CollectiveTraits{.collective = Collective::kAlltoallv,
                     .name = "alltoallv",
                     .has_blocks = true,
                     .has_counts = true,
                     .is_length_known = false},
    CollectiveTraits{.collective = Collective::kGather,
                     .name = "gather",
                     .to_root = "to",
                     .has_blocks = true,
                     .takes_block = true},
    CollectiveTraits{.collective = Collective::kGatherv,
                     .name = "gatherv",
                     .to_root = "to",
                     .has_blocks = true,
                     .takes_block = true,
                     .has_counts = true,
                     .is_length_known = false},
    CollectiveTraits{.collective = Collective::kScatter,
                     .name = "scatter",
                     .to_root = "from",
                     .has_blocks = true,
                     .gives_block = true},
    CollectiveTraits{.collective = Collective::kScatterv,
                     .name = "scatterv",
                     .to_root = "from",
                     .has_blocks = true,
                     .gives_block = true,
                     .has_counts = true,
                     .is_length_known = false},
};

// Returns null if no collective has the number; a peer may send any.
constexpr const CollectiveTraits* find_traits(Collective collective) {
  const auto number = static_cast<size_t>(collective);
  return number >= 1 && number <= kCollectives.size() ? &kCollectives[number - 1] : nullptr;
}

// The collective comes from this process, and so has a row.
constexpr const CollectiveTraits& traits(Collective collective) { return *find_traits(collective); }

// The number may come from a peer and be that of no collective.
constexpr bool is_length_known(Collective collective) {
  const CollectiveTraits* known = find_traits(collective);
  return known == nullptr || known->is_length_known;
}

// Returns whether every rank knows the lengths of all blocks, which may differ. The number may come
// from a peer and be that of no collective.
constexpr bool tells_blocks(Collective collective) {
  const CollectiveTraits* known = find_traits(collective);
  return known != nullptr && known->has_counts && known->is_length_known;
}

}  // namespace nezha
