// SPDX-License-Identifier: Apache-2.0
// Reduction trees (D. De Sensi et al.: Flare, 2021, section 4: the network manager): which switches
// add up what the hosts of one job send, and who sends to whom. The code has neither I/O nor a
// clock.
#pragma once

#include <functional>
#include <vector>

#include "absl/status/statusor.h"
#include "flare_offload/manager/fabric.h"

namespace nezha::flare {

// A switch of a tree. Its children are ranks or other nodes.
struct TreeNode {
  struct Child {
    int rank = -1;  // -1: it is a node
    int node = -1;
  };
  int number = 0;                    // the switch's number in its fabric
  int parent = -1;                   // node; -1: the root
  int place = 0;                     // which child of the parent this is
  std::vector<Child> children = {};  // children in the order of the lowest rank below each
  std::vector<int> ranks = {};       // all ranks that are below, ascending
};

// The root comes first, and each parent before its children.
using Tree = std::vector<TreeNode>;

// Returns the tree that joins the hosts, rank by rank, over the switches for which `usable` is
// true: the one of the fewest switches, and among those the lowest. Switches with a single child
// are left out: the child reaches the parent through them as it is. Returns kNotFound if there is
// none; the error says which hosts no root reaches. Returns kFailedPrecondition if a host is not in
// the fabric.
absl::StatusOr<Tree> build_tree(const Fabric& fabric, const std::vector<Address>& hosts,
                                const std::function<bool(int number)>& usable);

}  // namespace nezha::flare
