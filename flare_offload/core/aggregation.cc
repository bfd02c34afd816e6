// SPDX-License-Identifier: Apache-2.0
#include "flare_offload/core/aggregation.h"

#include <bit>
#include <cstring>

namespace nezha::flare {

void SingleBuffer::begin(Reduction reduction, size_t elements, size_t bytes) {
  reduction_ = reduction;
  elements_ = elements;
  bytes_ = bytes;
  is_first_ = true;
}

void SingleBuffer::add(int /*child*/, const std::byte* contribution) {
  if (bytes_ == 0) return;
  if (is_first_) {
    std::memcpy(memory_, contribution, bytes_);
    is_first_ = false;
  } else {
    reduction_(memory_, memory_, contribution, elements_);
  }
}

MultiBuffer::MultiBuffer(int buffers, std::byte* memory, size_t buffer_bytes)
    : buffers_(static_cast<size_t>(buffers)), memory_(memory), buffer_bytes_(buffer_bytes) {}

void MultiBuffer::begin(Reduction reduction, size_t elements, size_t bytes) {
  reduction_ = reduction;
  elements_ = elements;
  bytes_ = bytes;
  used_ = 0;
}

void MultiBuffer::add(int child, const std::byte* contribution) {
  if (bytes_ == 0) return;
  const size_t index = static_cast<size_t>(child) % buffers_;
  std::byte* buffer = memory_ + index * buffer_bytes_;
  if ((used_ >> index & 1) == 0) {
    std::memcpy(buffer, contribution, bytes_);
    used_ |= uint64_t{1} << index;
  } else {
    reduction_(buffer, buffer, contribution, elements_);
  }
}

// Child 0 has contributed, so the first buffer is in use if any is.
std::byte* MultiBuffer::total() {
  for (size_t index = 1; index < buffers_; ++index) {
    if ((used_ >> index & 1) != 0) {
      reduction_(memory_, memory_, memory_ + index * buffer_bytes_, elements_);
    }
  }
  used_ &= 1;  // the first one has it all
  return memory_;
}

TreeShape::TreeShape(int children) : nodes_(static_cast<size_t>(children)) {
  const auto combine = [this](int left, int right) {
    const auto parent = static_cast<int>(nodes_.size());
    nodes_.emplace_back();
    nodes_[static_cast<size_t>(left)] = {parent, right};
    nodes_[static_cast<size_t>(right)] = {parent, left};
    return parent;
  };
  // The first children fold in pairs, until a power of two of nodes is left. Then neighbours
  // combine.
  const auto power = static_cast<int>(std::bit_floor(static_cast<unsigned>(children)));
  std::vector<int> level;
  for (int child = 0; child < children; ++child) {
    const bool folds = child < 2 * (children - power);
    level.push_back(folds ? combine(child, child + 1) : child);
    if (folds) ++child;
  }
  while (level.size() > 1) {
    std::vector<int> next;
    for (size_t i = 0; i < level.size(); i += 2) next.push_back(combine(level[i], level[i + 1]));
    level = next;
  }
}

TreeAggregation::TreeAggregation(const TreeShape& shape, std::byte* memory, size_t buffer_bytes)
    : nodes_(shape.nodes()),
      root_(nodes_.size() - 1),
      memory_(memory),
      buffer_bytes_(buffer_bytes),
      held_(nodes_.size()) {}

void TreeAggregation::begin(Reduction reduction, size_t elements, size_t bytes) {
  reduction_ = reduction;
  elements_ = elements;
  bytes_ = bytes;
  used_ = 0;
  held_.assign(held_.size(), nullptr);
}

void TreeAggregation::add(int child, const std::byte* contribution) {
  auto at = static_cast<size_t>(child);
  std::byte* buffer = nullptr;  // has the node's value; null: `contribution` has it
  while (at != root_) {
    std::byte* sibling = held_[static_cast<size_t>(nodes_[at].sibling)];
    if (sibling == nullptr) break;
    reduction_(sibling, sibling, buffer == nullptr ? contribution : buffer, elements_);
    buffer = sibling;
    at = static_cast<size_t>(nodes_[at].parent);
  }
  if (buffer == nullptr) {
    buffer = memory_ + buffer_bytes_ * used_++;
    if (bytes_ > 0) std::memcpy(buffer, contribution, bytes_);
  }
  held_[at] = buffer;
}

}  // namespace nezha::flare
