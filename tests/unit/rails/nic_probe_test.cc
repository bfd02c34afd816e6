// SPDX-License-Identifier: Apache-2.0
// The probe on the machine that runs the test. tests/cluster probes namespaces with a known layout.
#include "rails/nic_probe.h"

#include <net/if.h>
#include <sched.h>

#include <algorithm>
#include <set>
#include <string>

#include "gtest/gtest.h"

namespace nezha {
namespace {

TEST(NicProbe, FindsLoopbackAndAllOthers) {
  const auto interfaces = probe_interfaces();
  ASSERT_TRUE(interfaces.ok()) << interfaces.status();
  std::set<std::string> names;
  for (const Interface& interface : *interfaces) {
    EXPECT_TRUE(names.insert(interface.name).second) << interface.name;
    EXPECT_EQ(static_cast<unsigned>(interface.index), if_nametoindex(interface.name.c_str()));
    EXPECT_GT(interface.mtu, 0) << interface.name;
    EXPECT_GE(interface.speed, 0) << interface.name;
    EXPECT_TRUE(interface.pci.empty() || interface.pci.size() >= 12) << interface.pci;
  }
  struct if_nameindex* const list = if_nameindex();
  for (const auto* entry = list; entry->if_index != 0; ++entry) {
    EXPECT_TRUE(names.contains(entry->if_name)) << entry->if_name;
  }
  if_freenameindex(list);
  const auto lo = std::find_if(interfaces->begin(), interfaces->end(),
                               [](const Interface& it) { return it.name == "lo"; });
  ASSERT_NE(lo, interfaces->end());
  EXPECT_TRUE(lo->is_loopback && lo->is_up && lo->has_carrier);
  EXPECT_TRUE(lo->kind.empty() && lo->master == 0 && lo->lower == 0 && lo->pci.empty());
  ASSERT_FALSE(lo->addresses.empty());
  EXPECT_EQ(lo->addresses.front().str(), "127.0.0.1/8");
}

TEST(NicProbe, NearNodesAreThoseOfTheCpusThatTheThreadMayUse) {
  const std::set<int> all = near_numa_nodes();
  cpu_set_t before;
  ASSERT_EQ(sched_getaffinity(0, sizeof before, &before), 0);
  cpu_set_t one;
  CPU_ZERO(&one);
  for (int cpu = 0; cpu < CPU_SETSIZE && CPU_COUNT(&one) == 0; ++cpu) {
    if (CPU_ISSET(cpu, &before)) CPU_SET(cpu, &one);
  }
  ASSERT_EQ(sched_setaffinity(0, sizeof one, &one), 0);
  const std::set<int> near = near_numa_nodes();
  EXPECT_LE(near.size(), 1u);
  EXPECT_TRUE(std::includes(all.begin(), all.end(), near.begin(), near.end()));
  EXPECT_EQ(near.empty(), all.empty()) << "a machine that has nodes has this CPU in one";
  sched_setaffinity(0, sizeof before, &before);
}

TEST(NicProbe, NearCpusAreThoseOfTheNicsNode) {
  EXPECT_TRUE(near_cpus("lo").empty()) << "it is nowhere";
  EXPECT_TRUE(near_cpus("no-such-if").empty());
  const auto interfaces = probe_interfaces();
  ASSERT_TRUE(interfaces.ok()) << interfaces.status();
  for (const Interface& interface : *interfaces) {
    if (!interface.kind.empty()) continue;  // it may have the node of a NIC below it
    EXPECT_EQ(near_cpus(interface.name).empty(), interface.numa_node < 0) << interface.name;
  }
}

}  // namespace
}  // namespace nezha
