// SPDX-License-Identifier: Apache-2.0
// Rounds cuts a slice of a vector into rounds, and says where each round's part of a chunk is.
//
// A vector whose parts are to be summed is cut into rounds of one size, and each round into chunks
// of its own. A vector that consists of blocks is a single round, and its chunks are the blocks: it
// would gain nothing from several rounds with a part of each block.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "collectives/engine.h"
#include "collectives/hosts/schedule.h"

namespace nezha {

class Rounds {
 public:
  struct Place {
    size_t round = 0;
    size_t offset = 0;  // the place in the round's part of the message
  };

  // `blocks` are the chunks if the vector consists of blocks; otherwise it is null.
  Rounds(const Slice& slice, int chunks, std::shared_ptr<const Blocks> blocks);

  size_t count() const { return count_; }
  // Messages are cut at multiples of the granule.
  size_t granule() const { return full_.granule(); }
  // These return a part of the vector.
  Range whole(size_t round) const;
  Range range(size_t round, Chunks chunks) const;
  // Returns how many bytes a message of these chunks has, in all rounds one after the other.
  uint64_t total(Chunks chunks) const;
  Place locate(Chunks chunks, uint64_t offset) const;

 private:
  static constexpr size_t kRoundBytes = 1 << 20;

  std::shared_ptr<const Blocks> blocks_;
  Range range_;  // the part of the vector
  size_t round_bytes_ = 0;
  size_t count_ = 1;
  Partition full_, last_;  // each round's but the last, and the last one's
};

}  // namespace nezha
