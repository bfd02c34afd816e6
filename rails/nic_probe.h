// SPDX-License-Identifier: Apache-2.0
// Asks the kernel for the description of this host's network interfaces.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/cpus.h"
#include "rails/interface.h"

namespace nezha {

// All interfaces of this network namespace: links and addresses by rtnetlink(7); speed,
// PCI address and NUMA node from sysfs, as far as that tells.
absl::StatusOr<std::vector<Interface>> probe_interfaces();

// The NUMA nodes whose CPUs the calling thread may run on. Empty if sysfs does not tell.
std::set<int> near_numa_nodes();

// Returns the rate of an interface, or of the hardware below it, in Mbit/s; 0 if the kernel does
// not know it, or if software made the interface: the drivers of such ones say any number.
int wire_speed_of(const std::string& interface);

// The CPUs of the NUMA node that the interface's NIC is at, or the first one that a bond, a VLAN or
// a bridge goes by. Empty if sysfs does not tell.
Cpus near_cpus(const std::string& interface);

}  // namespace nezha
