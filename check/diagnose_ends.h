// SPDX-License-Identifier: Apache-2.0
// Faults that the ranks' own rails show, before anything is measured.
#pragma once

#include <vector>

#include "check/diagnosis.h"
#include "check/ways.h"

namespace nezha::check {

// Finds rails that cannot be used or are down, names that only some ranks have, and MTUs that
// differ.
std::vector<Finding> diagnose_ends(const Evidence& evidence);

// Returns whether the host answers at this end for the address of another interface of the same
// subnet too (ARP flux). arp_filter=1 prevents that where the routes depend on the source address;
// where they do not, connections arrive at the wrong interface, which is found when they are made.
bool answers_at_either(const RailEnd& end);
// The command that fixes a host with two interfaces on one subnet.
constexpr const char* kOneSubnet =
    "`sysctl net.ipv4.conf.all.arp_ignore=1 net.ipv4.conf.all.arp_announce=2"
    " net.ipv4.conf.all.rp_filter=2`";

// Returns whether a fault of the way's ends has been reported already: an interface that is down,
// or an address that does not lead out of its host.
bool is_hopeless(const Words& words, const Way& way);

}  // namespace nezha::check
