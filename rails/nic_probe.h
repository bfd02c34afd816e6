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

// Returns all interfaces of this network namespace: links and addresses from rtnetlink(7); speed,
// PCI address and NUMA node from sysfs, as far as it knows them.
absl::StatusOr<std::vector<Interface>> probe_interfaces();

// Returns the NUMA nodes whose CPUs the calling thread may run on; none if sysfs does not tell.
std::set<int> near_numa_nodes();

// Returns the rate of an interface in Mbit/s. Returns 0 if the kernel does not know the rate, or if
// there is no hardware below the interface: drivers of such interfaces report any number.
int wire_speed_of(const std::string& interface);

// Returns the CPUs of the NUMA node of the interface's NIC, or of the first NIC below a bond, a
// VLAN or a bridge; none if sysfs does not tell.
Cpus near_cpus(const std::string& interface);

}  // namespace nezha
