// SPDX-License-Identifier: Apache-2.0
// How a block's contributions are combined, and the memory that this takes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "collectives/reduction.h"

namespace nezha::flare {

// Combines one block at a time. Not thread-safe.
class Aggregation {
 public:
  Aggregation() = default;
  virtual ~Aggregation() = default;
  Aggregation(const Aggregation&) = delete;
  Aggregation& operator=(const Aggregation&) = delete;

  // Starts another block and forgets the one before. A contribution to it has `elements` elements
  // in `bytes` bytes, which fit a buffer.
  virtual void begin(Reduction reduction, size_t elements, size_t bytes) = 0;
  // Called once for each child.
  virtual void add(int child, const std::byte* contribution) = 0;
  // The combination, once all children's contributions have been added. The caller may change it.
  virtual std::byte* total() = 0;
};

// The paper's "single buffer": the first contribution is copied, the others are added to it, in the
// order of their arrival.
class SingleBuffer final : public Aggregation {
 public:
  explicit SingleBuffer(std::byte* memory) : memory_(memory) {}

  void begin(Reduction reduction, size_t elements, size_t bytes) override;
  void add(int child, const std::byte* contribution) override;
  std::byte* total() override { return memory_; }

 private:
  std::byte* const memory_;  // of one buffer
  Reduction reduction_ = nullptr;
  size_t elements_ = 0;
  size_t bytes_ = 0;
  bool is_first_ = true;
};

// The paper's "multiple buffers": child i's contributions go to buffer i mod B, and the buffers are
// combined at the end. So B cores can work on one block without waiting for each other, which is
// the reason for the paper's choice by size. In nezha-switch one core does all of a block, and
// there a single buffer is best at almost all sizes (docs/performance.md). So a session has a
// single buffer unless told otherwise.
class MultiBuffer final : public Aggregation {
 public:
  // `memory` holds `buffers` buffers, 1 to kMaxChildren, one after the other.
  MultiBuffer(int buffers, std::byte* memory, size_t buffer_bytes);

  void begin(Reduction reduction, size_t elements, size_t bytes) override;
  void add(int child, const std::byte* contribution) override;
  std::byte* total() override;

 private:
  const size_t buffers_;
  std::byte* const memory_;
  const size_t buffer_bytes_;
  Reduction reduction_ = nullptr;
  size_t elements_ = 0;
  size_t bytes_ = 0;
  uint64_t used_ = 0;  // a bit for each buffer that has a contribution
};

// The binary tree over the children by which the hosts' reproducible algorithms add up ranks ("the
// tree of ranks", collectives/hosts/recursive_doubling.h). Results have the same bits as the hosts'
// if there is one switch, or if all switches have the same number of children, a power of two.
class TreeShape {
 public:
  explicit TreeShape(int children);

  // A node: a child's contribution (numbered as the children), or the combination of two nodes.
  struct Node {
    int parent = -1;   // -1: the root
    int sibling = -1;  // the other one that the parent combines
  };
  const std::vector<Node>& nodes() const { return nodes_; }

  // The buffers that one block takes in the worst order of arrival. A contribution needs a buffer
  // only if its sibling is not complete yet. So of two contributions that are siblings at most one
  // needs a buffer, and at most one contribution has no such sibling.
  static int buffers(int children) { return (children + 1) / 2; }

 private:
  std::vector<Node> nodes_;
};

// The paper's "tree": combines the same pairs of operands whatever the order of arrival, and all
// operations are commutative to the bit.
class TreeAggregation final : public Aggregation {
 public:
  // `memory` holds TreeShape::buffers() buffers, one after the other. The shape outlives this.
  TreeAggregation(const TreeShape& shape, std::byte* memory, size_t buffer_bytes);

  // The bytes that one takes besides its buffers.
  static size_t size(const TreeShape& shape) {
    return sizeof(TreeAggregation) + shape.nodes().size() * sizeof(std::byte*);
  }

  void begin(Reduction reduction, size_t elements, size_t bytes) override;
  void add(int child, const std::byte* contribution) override;
  std::byte* total() override { return held_[root_]; }

 private:
  const std::vector<TreeShape::Node>& nodes_;
  const size_t root_;
  std::byte* const memory_;
  const size_t buffer_bytes_;
  int used_ = 0;  // buffers
  Reduction reduction_ = nullptr;
  size_t elements_ = 0;
  size_t bytes_ = 0;
  std::vector<std::byte*> held_;  // by node: where its value is; null: it is not complete
};

}  // namespace nezha::flare
