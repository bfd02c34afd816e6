// SPDX-License-Identifier: Apache-2.0
// The NIC selector (Nezha paper, section III-E): which of a host's network interfaces become rails,
// and which devices of different hosts are on one rail. Pure decisions, over descriptions.
//
// Each rank decides alone, and nothing that it decides depends on who the other ranks are: a
// process's devices are shared by all its contexts, whichever ranks those have. A rail is called
// after its subnet (10.1.0.0/16), so that it is the same rail on every host of that network,
// whatever the interfaces are called there. Several NICs on one subnet are numbered in the order of
// their names (10.1.0.0/16, 10.1.0.0/16#2): any of them reaches any of the others, so that it does
// not matter if a host has fewer. A rail of an address without a subnet (/32, as clouds and
// containers have it) is called after its interface.
//
// In a routed network each host has a subnet of its own, and no rank can tell that alone. So two
// ranks that meet pair what has no partner by its rail's name by the interface's name; see
// pair_rails.
//
// What this does not see: networks that are not connected and yet have the same subnet on every
// host (the bridge networks of Docker on several machines), and those of a host's own that carry
// another host's interface name. Links there never come up; name the rails to have none.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "rails/interface.h"

namespace nezha {

// What is to become of an interface.
struct Choice {
  Interface interface;
  std::string rail;  // empty: it is left
  std::string why;   // it was taken, or left
};

// One for each interface: those that are taken, in an order that is the same on all hosts which
// have the same rails, and then the others. At most `limit` are taken; devices of distinct cards go
// first, and then those near `near_nodes`, the NUMA nodes that the process runs on. An interface
// whose name matches one of the `unwanted` patterns (fnmatch(3), such as "eth0" or "ib*") is left.
std::vector<Choice> select_nics(const std::vector<Interface>& interfaces,
                                const std::set<int>& near_nodes, size_t limit,
                                const std::vector<std::string>& unwanted = {});

// Of a rank's rails, by name: the interface of each, if the selector chose it, or nothing.
using ChosenInterfaces = std::map<std::string, std::string>;

// The rails that two ranks have in common: this one's name of each, and the other's. A rail is
// paired with the one of the same name; what is left over, if the selector chose it on both sides,
// with the rail of the same interface name. Symmetric: the other rank finds the same pairs.
std::map<std::string, std::string> pair_rails(const ChosenInterfaces& here,
                                              const ChosenInterfaces& there);

}  // namespace nezha
