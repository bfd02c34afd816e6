// SPDX-License-Identifier: Apache-2.0
// Parts of an operation's vector, as sets of bytes.
#pragma once

#include <vector>

#include "collectives/partition.h"

namespace nezha {

// Sorted, disjoint, none of them empty or adjacent to the next.
using ChunkMap = std::vector<Range>;

// Adds a range, which may overlap what is there.
void add(ChunkMap& map, const Range& range);
// These return the bytes that are in `a` but not in `b`, and the bytes that are in both.
ChunkMap difference(const ChunkMap& a, const ChunkMap& b);
ChunkMap intersection(const ChunkMap& a, const ChunkMap& b);

}  // namespace nezha
