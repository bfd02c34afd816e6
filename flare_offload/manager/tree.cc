// SPDX-License-Identifier: Apache-2.0
#include "flare_offload/manager/tree.h"

#include <algorithm>
#include <deque>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "flare_offload/wire/frame.h"

namespace nezha::flare {
namespace {

constexpr int kUnreached = -1;

struct Paths {
  std::vector<int> parent;    // indexed by switch; the root's own number at the root
  std::vector<int> distance;  // the distance from the root, or kUnreached
};

Paths shortest_paths(const Fabric& fabric, int root, const std::function<bool(int)>& usable) {
  const size_t count = fabric.switches.size();
  Paths paths{std::vector<int>(count, kUnreached), std::vector<int>(count, kUnreached)};
  std::deque<int> queue{root};
  paths.parent[static_cast<size_t>(root)] = root;
  paths.distance[static_cast<size_t>(root)] = 0;
  while (!queue.empty()) {
    const auto at = static_cast<size_t>(queue.front());
    queue.pop_front();
    for (const int next : fabric.switches[at].neighbours) {
      const auto to = static_cast<size_t>(next);
      if (paths.distance[to] != kUnreached || !usable(next)) continue;
      paths.parent[to] = static_cast<int>(at);
      paths.distance[to] = paths.distance[at] + 1;
      queue.push_back(next);
    }
  }
  return paths;
}

// Returns the host's switch that is nearest to the root and can be reached, or kUnreached if none
// can.
int attachment(const FabricHost& host, const Paths& paths) {
  int best = kUnreached;
  for (const int number : host.switches) {
    const int distance = paths.distance[static_cast<size_t>(number)];
    if (distance == kUnreached) continue;
    if (best == kUnreached || distance < paths.distance[static_cast<size_t>(best)]) best = number;
  }
  return best;
}

// The ranks and switches below each switch, before switches with a single child are left out.
struct Shape {
  int root;
  std::vector<std::vector<int>> ranks;     // the ranks of the hosts that send to each switch
  std::vector<std::vector<int>> switches;  // the switches that send to each switch
};

// Returns nothing if not all hosts can be reached from that root.
std::optional<Shape> shape_below(const Fabric& fabric, const std::vector<const FabricHost*>& hosts,
                                 int root, const Paths& paths) {
  const size_t count = fabric.switches.size();
  Shape shape{root, std::vector<std::vector<int>>(count), std::vector<std::vector<int>>(count)};
  std::vector<bool> is_part(count);
  is_part[static_cast<size_t>(root)] = true;
  for (size_t rank = 0; rank < hosts.size(); ++rank) {
    int at = attachment(*hosts[rank], paths);
    if (at == kUnreached) return std::nullopt;
    shape.ranks[static_cast<size_t>(at)].push_back(static_cast<int>(rank));
    while (!is_part[static_cast<size_t>(at)]) {
      is_part[static_cast<size_t>(at)] = true;
      const int parent = paths.parent[static_cast<size_t>(at)];
      shape.switches[static_cast<size_t>(parent)].push_back(at);
      at = parent;
    }
  }
  return shape;
}

// Returns the first switch from this one down that does more than pass on what one switch below
// sends.
int first_that_adds(const Shape& shape, int number) {
  for (;;) {
    const auto& below = shape.switches[static_cast<size_t>(number)];
    if (below.size() != 1 || !shape.ranks[static_cast<size_t>(number)].empty()) return number;
    number = below.front();
  }
}

void add_node(const Shape& shape, int number, int parent, Tree& tree) {
  const auto node = tree.size();
  tree.push_back({.number = number, .parent = parent});
  const auto index = static_cast<size_t>(number);
  std::vector<std::pair<int, TreeNode::Child>> children;  // with the lowest rank of each
  std::vector<int> ranks = shape.ranks[index];
  children.reserve(ranks.size() + shape.switches[index].size());
  for (const int rank : ranks) children.push_back({rank, {.rank = rank}});
  for (const int below : shape.switches[index]) {
    const auto child = tree.size();
    add_node(shape, first_that_adds(shape, below), static_cast<int>(node), tree);
    children.push_back({tree[child].ranks.front(), {.node = static_cast<int>(child)}});
    ranks.insert(ranks.end(), tree[child].ranks.begin(), tree[child].ranks.end());
  }
  std::sort(children.begin(), children.end(),
            [](const auto& a, const auto& b) { return a.first < b.first; });
  for (size_t place = 0; place < children.size(); ++place) {
    const TreeNode::Child& child = children[place].second;
    tree[node].children.push_back(child);
    if (child.node >= 0) tree[static_cast<size_t>(child.node)].place = static_cast<int>(place);
  }
  std::sort(ranks.begin(), ranks.end());
  tree[node].ranks = std::move(ranks);
}

int depth(const Tree& tree) {
  int deepest = 0;
  for (const TreeNode& node : tree) {
    int depth = 0;
    for (int at = node.parent; at >= 0; at = tree[static_cast<size_t>(at)].parent) ++depth;
    deepest = std::max(deepest, depth);
  }
  return deepest;
}

bool is_wide(const Tree& tree) {
  return std::any_of(tree.begin(), tree.end(), [](const TreeNode& node) {
    return node.children.size() > static_cast<size_t>(kMaxChildren);
  });
}

}  // namespace

absl::StatusOr<Tree> build_tree(const Fabric& fabric, const std::vector<Address>& hosts,
                                const std::function<bool(int number)>& usable) {
  std::vector<const FabricHost*> known;
  for (const Address& address : hosts) {
    known.push_back(fabric.host(address));
    if (known.back() != nullptr) continue;
    return absl::FailedPreconditionError(
        absl::StrCat("the fabric has no host ", address.host(),
                     "; add it to the manager's fabric file, or take another interface"));
  }
  std::optional<Tree> best;
  bool is_too_wide = false;
  for (int root = 0; root < static_cast<int>(fabric.switches.size()); ++root) {
    if (!usable(root)) continue;
    const Paths paths = shortest_paths(fabric, root, usable);
    const auto shape = shape_below(fabric, known, root, paths);
    if (!shape) continue;
    Tree tree;
    add_node(*shape, first_that_adds(*shape, root), -1, tree);
    if (is_wide(tree)) {
      is_too_wide = true;
      continue;
    }
    const auto cost = [](const Tree& of) { return std::pair(of.size(), depth(of)); };
    if (!best || cost(tree) < cost(*best)) best = std::move(tree);
  }
  if (best) return *std::move(best);
  if (is_too_wide) {
    return absl::NotFoundError(
        absl::StrCat("a switch would have more than ", kMaxChildren, " children"));
  }
  std::vector<std::string> names;
  names.reserve(known.size());
  for (const FabricHost* host : known) names.push_back(host->address);
  return absl::NotFoundError(
      absl::StrCat("no switches that can be used join the hosts ", absl::StrJoin(names, ", ")));
}

}  // namespace nezha::flare
