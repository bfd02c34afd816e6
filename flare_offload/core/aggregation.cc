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

TreeShape::TreeShape(int children) : nodes_(static_cast<size_t>(children)) {
  const auto combine = [this](int left, int right) {
    const auto parent = static_cast<int>(nodes_.size());
    nodes_.emplace_back();
    nodes_[static_cast<size_t>(left)] = {parent, right, true};
    nodes_[static_cast<size_t>(right)] = {parent, left, false};
    return parent;
  };
  // The first ones fold to a power of two of nodes, of which then each two neighbours combine.
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

TreeAggregation::TreeAggregation(const TreeShape& shape, std::byte* memory, int buffers,
                                 size_t buffer_bytes)
    : nodes_(shape.nodes()), root_(nodes_.size() - 1), held_(nodes_.size()) {
  for (int i = 0; i < buffers; ++i) buffers_.push_back(memory + buffer_bytes * i);
  free_.reserve(buffers_.size());
}

void TreeAggregation::begin(Reduction reduction, size_t elements, size_t bytes) {
  reduction_ = reduction;
  elements_ = elements;
  bytes_ = bytes;
  held_.assign(held_.size(), nullptr);
  free_ = buffers_;
}

void TreeAggregation::add(int child, const std::byte* contribution) {
  auto at = static_cast<size_t>(child);
  std::byte* buffer = nullptr;  // that the node's value is in; null: in `contribution`
  while (at != root_) {
    const TreeShape::Node& node = nodes_[at];
    std::byte*& sibling = held_[static_cast<size_t>(node.sibling)];
    if (sibling == nullptr) break;
    const std::byte* value = buffer == nullptr ? contribution : buffer;
    reduction_(sibling, node.is_left ? value : sibling, node.is_left ? sibling : value, elements_);
    if (buffer != nullptr) free_.push_back(buffer);
    buffer = sibling;
    sibling = nullptr;
    at = static_cast<size_t>(node.parent);
  }
  if (buffer == nullptr) {
    buffer = free_.back();
    free_.pop_back();
    if (bytes_ > 0) std::memcpy(buffer, contribution, bytes_);
  }
  held_[at] = buffer;
}

}  // namespace nezha::flare
