// SPDX-License-Identifier: Apache-2.0
#include "collectives/hosts/tree.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "collectives/hosts/blocks_around.h"

namespace nezha {
namespace {

constexpr Chunks kAll{0, 1};

struct Family {
  Family(int rank, int root, int size) {
    const int place = (rank - root + size) % size;
    const auto at = [&](int other) { return Transfer{(other + root) % size, kAll}; };
    is_root = place == 0;
    parent = at(place & (place - 1));
    for (int bit = 1; (place & bit) == 0 && place + bit < size; bit *= 2) {
      children.push_back(at(place + bit));
    }
  }
  bool is_root;
  Transfer parent;
  std::vector<Transfer> children;  // the nearest first
};

Step sending(std::vector<Transfer> to) {
  return {.use = Step::Use::kResult, .sends = std::move(to), .receives = {}};
}

Step receiving(Step::Use use, const Transfer& from) {
  return {.use = use, .sends = {}, .receives = {from}};
}

// Returns the steps up the tree of `top`, which has the result in the end.
std::vector<Step> up(int rank, int top, int size) {
  const Family family(rank, top, size);
  std::vector<Step> steps;
  for (const Transfer& child : family.children) {
    steps.push_back(receiving(Step::Use::kPartialSum, child));
  }
  if (family.is_root) {
    steps.back().use = Step::Use::kFinalSum;
  } else {
    steps.push_back(sending({family.parent}));
  }
  return steps;
}

// Returns the transfers with `peer`, a parent or a child, of all blocks of the subtree of rank
// `top`.
std::vector<Transfer> subtree(int peer, int top, int root, int size) {
  const int place = (top - root + size) % size;
  const int below = place == 0 ? size : std::min(place & -place, size - place);
  return blocks_around(peer, top, below, size);
}

void append(std::vector<Transfer>& to, const std::vector<Transfer>& more) {
  to.insert(to.end(), more.begin(), more.end());
}

}  // namespace

Schedule tree_gather(int rank, int root, int size) {
  const Family family(rank, root, size);
  Step gather;
  for (const Transfer& child : family.children) {
    append(gather.receives, subtree(child.peer, child.peer, root, size));
  }
  Schedule schedule{.chunks = size, .steps = {gather}};
  if (!family.is_root) {
    schedule.steps.push_back(sending(subtree(family.parent.peer, rank, root, size)));
  }
  schedule.steps.push_back(agreement(rank, size));
  return schedule;
}

Schedule tree_scatter(int rank, int root, int size) {
  const Family family(rank, root, size);
  Schedule schedule{.chunks = size, .steps = {}};
  if (!family.is_root) {
    schedule.steps = {{.use = Step::Use::kResult,
                       .sends = {},
                       .receives = subtree(family.parent.peer, rank, root, size)}};
  }
  Step scatter;
  const std::vector<Transfer> farthest_first(family.children.rbegin(), family.children.rend());
  for (const Transfer& child : farthest_first) {
    append(scatter.sends, subtree(child.peer, child.peer, root, size));
  }
  schedule.steps.push_back(scatter);
  schedule.steps.push_back(agreement(rank, size));
  return schedule;
}

Schedule tree_broadcast(int rank, int root, int size) {
  const Family family(rank, root, size);
  Schedule schedule;
  if (!family.is_root) schedule.steps = {receiving(Step::Use::kResult, family.parent)};
  schedule.steps.push_back(sending({family.children.rbegin(), family.children.rend()}));
  schedule.steps.push_back(agreement(rank, size));
  return schedule;
}

Schedule tree_reduce(int rank, int root, int size) {
  Schedule schedule{.chunks = 1, .steps = up(rank, root, size)};
  schedule.steps.push_back(agreement(rank, size));
  return schedule;
}

Schedule ordered_tree_reduce(int rank, int root, int size) {
  Schedule schedule{.chunks = 1, .steps = up(rank, 0, size)};
  if (root != 0 && rank == 0) schedule.steps.push_back(sending({{root, kAll}}));
  if (root != 0 && rank == root) {
    schedule.steps.push_back(receiving(Step::Use::kResult, {0, kAll}));
  }
  schedule.steps.push_back(agreement(rank, size));
  return schedule;
}

}  // namespace nezha
