// SPDX-License-Identifier: Apache-2.0
#include "collectives/hosts/rounds.h"

#include <algorithm>
#include <utility>

namespace nezha {

Rounds::Rounds(const Slice& slice, int chunks, std::shared_ptr<const Blocks> blocks)
    : blocks_(std::move(blocks)),
      range_(Partition(slice.operation.elements, slice.operation.element_size, 1)
                 .chunk(0, slice.bounds)),
      full_(0, slice.operation.element_size, chunks),
      last_(full_) {
  if (blocks_ != nullptr) {
    range_ = {0, blocks_->bytes()};
    return;
  }
  const size_t element_size = slice.operation.element_size;
  const size_t unit = full_.granule() * static_cast<size_t>(chunks);
  round_bytes_ = std::max<size_t>(1, kRoundBytes / unit) * unit;
  count_ = std::max<size_t>(1, (range_.length + round_bytes_ - 1) / round_bytes_);
  const size_t last_bytes = range_.length - (count_ - 1) * round_bytes_;
  full_ = Partition(round_bytes_ / element_size, element_size, chunks);
  last_ = Partition(last_bytes / element_size, element_size, chunks);
}

Range Rounds::whole(size_t round) const {
  if (count_ == 1) return range_;
  const size_t begin = round * round_bytes_;
  return {range_.offset + begin, std::min(round_bytes_, range_.length - begin)};
}

Range Rounds::range(size_t round, Chunks chunks) const {
  if (chunks.begin == chunks.end) return {range_.offset, 0};
  if (blocks_ != nullptr) return blocks_->blocks(chunks.begin, chunks.end);
  const Partition& partition = round + 1 < count_ ? full_ : last_;
  const size_t begin = partition.chunk(chunks.begin, {}).offset;
  const Range last = partition.chunk(chunks.end - 1, {});
  return {range_.offset + round * round_bytes_ + begin, last.offset + last.length - begin};
}

uint64_t Rounds::total(Chunks chunks) const {
  return (count_ - 1) * range(0, chunks).length + range(count_ - 1, chunks).length;
}

Rounds::Place Rounds::locate(Chunks chunks, uint64_t offset) const {
  const size_t length = range(0, chunks).length;
  if (length == 0) return {0, offset};  // a single round, and nothing of it
  const size_t round = std::min(offset / length, count_ - 1);
  return {round, offset - round * length};
}

}  // namespace nezha
