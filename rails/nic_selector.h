// SPDX-License-Identifier: Apache-2.0
// The NIC selector (Nezha paper, section III-E) decides which of a host's network interfaces become
// rails, and which devices of different hosts are on one rail. It only makes decisions, from
// descriptions of the interfaces.
//
// Each rank decides alone, and its decisions do not depend on the other ranks: all contexts of a
// process share its devices, whichever ranks those contexts have. A rail is named after its subnet
// (10.1.0.0/16), so that it is the same rail on every host of that network, whatever the interfaces
// are called there. Several NICs on one subnet are numbered in the order of their names
// (10.1.0.0/16, 10.1.0.0/16#2). Any of them reaches any of the others, so it does not matter if a
// host has fewer. If an address has no subnet (/32, as in clouds and containers), its rail is named
// after the interface.
//
// In a routed network each host has a subnet of its own, which no rank can tell alone. So two ranks
// that meet pair rails without a partner of the same name by their interfaces' names; see
// pair_rails.
//
// The selector does not see two cases: networks that are not connected and yet have the same subnet
// on every host (the bridge networks of Docker on several machines), and a host's private network
// whose interface has the same name as another host's. Links there never come up; name the rails to
// avoid them.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "rails/interface.h"

namespace nezha {

// The decision about an interface.
struct Choice {
  Interface interface;
  std::string rail;  // empty: it is not taken
  std::string why;   // the reason why it is or is not taken
};

// Returns a choice for each interface: first those that are taken, in an order that is the same on
// all hosts with the same rails, and then the others. At most `limit` are taken. Devices of
// distinct cards are preferred, then those near `near_nodes`, the NUMA nodes that the process runs
// on. An interface whose name matches one of the `unwanted` patterns (fnmatch(3), such as "eth0" or
// "ib*") is not taken.
std::vector<Choice> select_nics(const std::vector<Interface>& interfaces,
                                const std::set<int>& near_nodes, size_t limit,
                                const std::vector<std::string>& unwanted = {});

// Maps the names of a rank's rails to their interfaces, or to nothing for rails that the selector
// did not choose.
using ChosenInterfaces = std::map<std::string, std::string>;

// Returns the rails that two ranks have in common: this rank's name of each, and the other's. A
// rail is paired with the rail of the same name. Rails without such a partner that the selector
// chose on both sides are paired by their interfaces' names. Symmetric: the other rank finds the
// same pairs.
std::map<std::string, std::string> pair_rails(const ChosenInterfaces& here,
                                              const ChosenInterfaces& there);

}  // namespace nezha
