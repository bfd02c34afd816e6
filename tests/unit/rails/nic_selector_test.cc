// SPDX-License-Identifier: Apache-2.0
#include "rails/nic_selector.h"

#include <arpa/inet.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "gtest/gtest.h"

namespace nezha {
namespace {

constexpr size_t kNoLimit = 100;

InterfaceAddress address(absl::string_view text) {
  const std::pair<std::string, std::string> halves = absl::StrSplit(text, '/');
  InterfaceAddress made;
  made.is_ipv6 = absl::StrContains(text, ':');
  EXPECT_EQ(inet_pton(made.is_ipv6 ? AF_INET6 : AF_INET, halves.first.c_str(), made.bytes.data()),
            1);
  EXPECT_TRUE(absl::SimpleAtoi(halves.second, &made.prefix));
  return made;
}

// A host that the test builds up interface by interface.
class Host {
 public:
  // A NIC that is up, with addresses such as "10.0.0.1/16 fe80::1/64".
  Host& nic(const std::string& name, absl::string_view addresses = "") {
    Interface& made = interfaces_.emplace_back();
    made.name = name;
    made.index = static_cast<int>(interfaces_.size());
    made.is_up = made.has_carrier = true;
    for (const auto text : absl::StrSplit(addresses, ' ', absl::SkipEmpty())) {
      made.addresses.push_back(address(text));
    }
    return *this;
  }
  Host& virtual_device(const std::string& kind, const std::string& name,
                       absl::string_view addresses = "") {
    nic(name, addresses);
    interfaces_.back().kind = kind;
    return *this;
  }
  Host& loopback() {
    nic("lo", "127.0.0.1/8 ::1/128");
    interfaces_.back().is_loopback = true;
    return *this;
  }

  // These describe the interface that was added last.
  Host& speed(int mbits) {
    return change([&](Interface& it) { it.speed = mbits; });
  }
  Host& down() {
    return change([](Interface& it) { it.is_up = it.has_carrier = false; });
  }
  Host& no_carrier() {
    return change([](Interface& it) { it.has_carrier = false; });
  }
  Host& pci(const std::string& where, int node = -1) {
    return change([&](Interface& it) {
      it.pci = where;
      it.numa_node = node;
    });
  }
  Host& port_of(const std::string& master) {
    return change([&](Interface& it) {
      it.master = find(master).index;
      it.port_kind = find(master).kind;
    });
  }
  Host& on(const std::string& lower) {
    return change([&](Interface& it) { it.lower = find(lower).index; });
  }

  Host& unwanted(const std::vector<std::string>& patterns) {
    unwanted_ = patterns;
    return *this;
  }

  std::vector<Choice> choices(size_t limit = kNoLimit, const std::set<int>& near = {}) const {
    auto choices = select_nics(interfaces_, near, limit, unwanted_);
    EXPECT_EQ(choices.size(), interfaces_.size()) << "one for each";
    // The answer does not depend on the kernel's order.
    auto backwards = interfaces_;
    std::reverse(backwards.begin(), backwards.end());
    const auto again = select_nics(backwards, near, limit, unwanted_);
    for (size_t i = 0; i < choices.size(); ++i) {
      EXPECT_EQ(choices[i].interface.name, again[i].interface.name);
      EXPECT_EQ(choices[i].rail, again[i].rail);
      EXPECT_FALSE(choices[i].why.empty());
    }
    return choices;
  }

  // The chosen interfaces, as "eth0=10.0.0.0/16 eth1=...".
  std::string taken(size_t limit = kNoLimit, const std::set<int>& near = {}) const {
    std::string text;
    for (const Choice& choice : choices(limit, near)) {
      if (choice.rail.empty()) continue;
      absl::StrAppend(&text, text.empty() ? "" : " ", choice.interface.name, "=", choice.rail);
    }
    return text;
  }

  // Why the interface was not chosen; empty if it was.
  std::string why_left(const std::string& name) const {
    for (const Choice& choice : choices()) {
      if (choice.interface.name == name && choice.rail.empty()) return choice.why;
    }
    return "";
  }

  ChosenInterfaces rails() const {
    ChosenInterfaces rails;
    for (const Choice& choice : choices()) {
      if (!choice.rail.empty()) rails[choice.rail] = choice.interface.name;
    }
    return rails;
  }

 private:
  const Interface& find(const std::string& name) const {
    return *std::find_if(interfaces_.begin(), interfaces_.end(),
                         [&](const Interface& it) { return it.name == name; });
  }
  template <typename Change>
  Host& change(Change apply) {
    apply(interfaces_.back());
    return *this;
  }

  std::vector<std::string> unwanted_;
  std::vector<Interface> interfaces_;
};

// ---- Addresses ---------------------------------------------------------------------------------

TEST(InterfaceAddress, KnowsItsSubnet) {
  const std::map<std::string, std::string> subnets{
      {"10.1.2.3/16", "10.1.0.0/16"},        {"10.1.2.255/25", "10.1.2.128/25"},
      {"10.1.2.3/32", "10.1.2.3/32"},        {"10.1.2.3/31", "10.1.2.2/31"},
      {"10.1.2.3/0", "0.0.0.0/0"},           {"fd00::1:2/64", "fd00::/64"},
      {"fd00:1:2:3::9/56", "fd00:1:2::/56"}, {"fd00::ff/121", "fd00::80/121"},
      {"fd00::1/128", "fd00::1/128"}};
  for (const auto& [text, subnet] : subnets) {
    EXPECT_EQ(address(text).str(), text);
    EXPECT_EQ(address(text).subnet().str(), subnet);
  }
  EXPECT_EQ(address("10.1.2.3/16").subnet(), address("10.1.7.9/16").subnet());
  EXPECT_NE(address("10.1.2.3/16").subnet(), address("10.1.2.3/17").subnet());
}

TEST(InterfaceAddress, MayBeLinkLocal) {
  for (const std::string text : {"169.254.3.1/16", "fe80::1/64", "febf::1/64"}) {
    EXPECT_TRUE(address(text).is_link_local()) << text;
  }
  for (const std::string text : {"169.255.3.1/16", "168.254.0.1/16", "fec0::1/64", "fd80::1/64"}) {
    EXPECT_FALSE(address(text).is_link_local()) << text;
  }
}

// ---- What is taken -----------------------------------------------------------------------------

TEST(NicSelector, TakesNicsAndCallsRailsAfterSubnets) {
  const Host host =
      Host().loopback().nic("eth0", "10.0.0.1/16 fd00::1/64").nic("eth1", "10.1.0.1/16");
  EXPECT_EQ(host.taken(), "eth0=10.0.0.0/16 eth1=10.1.0.0/16");
  EXPECT_EQ(host.why_left("lo"), "loopback");
}

TEST(NicSelector, TakesNothingWithoutNics) {
  EXPECT_EQ(Host().taken(), "");
  EXPECT_EQ(Host().loopback().taken(), "");
}

TEST(NicSelector, LeavesWhatIsDownOrHasNoCarrier) {
  const Host host = Host()
                        .nic("eth0", "10.0.0.1/16")
                        .down()
                        .nic("eth1", "10.1.0.1/16")
                        .no_carrier()
                        .nic("eth2", "10.2.0.1/16");
  EXPECT_EQ(host.taken(), "eth2=10.2.0.0/16");
  EXPECT_EQ(host.why_left("eth0"), "down");
  EXPECT_EQ(host.why_left("eth1"), "no carrier");
}

TEST(NicSelector, LeavesWhatHasNoAddressForOthersToReach) {
  const Host host = Host()
                        .nic("eth0")
                        .nic("eth1", "fe80::1/64")
                        .nic("usb0", "169.254.3.1/24 fe80::2/64")
                        .nic("eth2", "fe80::3/64 fd02::1/64");
  EXPECT_EQ(host.taken(), "eth2=fd02::/64");
  EXPECT_TRUE(absl::StrContains(host.why_left("eth0"), "no IPv4 or IPv6 address"));
  EXPECT_TRUE(absl::StrContains(host.why_left("eth1"), "link-local"));
  EXPECT_TRUE(absl::StrContains(host.why_left("usb0"), "link-local"))
      << "to the board's controller";
}

TEST(NicSelector, TheAddressIsTheOneThatTheDeviceListensOn) {
  EXPECT_EQ(Host().nic("eth0", "fd00::1/64 10.0.0.1/16 10.9.0.1/16").taken(), "eth0=10.0.0.0/16");
}

TEST(NicSelector, OnADockerHostTakesTheNicsOnly) {
  const Host host = Host()
                        .loopback()
                        .nic("enp3s0", "192.168.1.10/24")
                        .virtual_device("bridge", "docker0", "172.17.0.1/16")
                        .virtual_device("bridge", "br-4f2a", "172.18.0.1/16")
                        .virtual_device("bridge", "virbr0", "192.168.122.1/24")
                        .virtual_device("veth", "veth1a2b", "fe80::1/64")
                        .port_of("docker0")
                        .virtual_device("tun", "vnet0", "fe80::2/64")
                        .port_of("virbr0")
                        .virtual_device("veth", "cali12", "fe80::3/64")
                        .virtual_device("veth", "veth9", "10.244.0.1/32")
                        .virtual_device("vxlan", "flannel.1", "10.244.0.0/32")
                        .virtual_device("tun", "tun0", "10.8.0.2/24")
                        .virtual_device("wireguard", "wg0", "10.9.0.2/24")
                        .virtual_device("dummy", "kube-ipvs0", "10.96.0.1/32");
  EXPECT_EQ(host.taken(), "enp3s0=192.168.1.0/24");
  EXPECT_EQ(host.why_left("docker0"), "a bridge without a NIC");
  EXPECT_EQ(host.why_left("virbr0"), "a bridge without a NIC");
  EXPECT_TRUE(absl::StrContains(host.why_left("veth1a2b"), "a port of docker0"));
  EXPECT_TRUE(absl::StrContains(host.why_left("veth9"), "on a host that has NICs"));
  EXPECT_TRUE(absl::StrContains(host.why_left("flannel.1"), "vxlan"));
}

TEST(NicSelector, TheNicsOfAHostThatAreAllUnpluggedDoNotMakeItAContainer) {
  const Host host = Host()
                        .nic("eth0", "10.0.0.1/16")
                        .no_carrier()
                        .virtual_device("veth", "veth9", "10.244.0.1/24");
  EXPECT_EQ(host.taken(), "");
}

TEST(NicSelector, InAContainerTakesItsVeths) {
  for (const std::string kind : {"veth", "netkit", "macvlan", "ipvlan"}) {
    const Host host = Host().loopback().virtual_device(kind, "eth0", "172.17.0.2/16");
    EXPECT_EQ(host.taken(), "eth0=172.17.0.0/16") << kind;
  }
  const Host two = Host()
                       .loopback()
                       .virtual_device("veth", "eth0", "10.0.0.1/16")
                       .virtual_device("veth", "eth1", "10.1.0.1/16")
                       .virtual_device("ipip", "tunl0")
                       .down();
  EXPECT_EQ(two.taken(), "eth0=10.0.0.0/16 eth1=10.1.0.0/16");
  const Host nested = Host()
                          .virtual_device("veth", "eth0", "10.0.0.1/16")
                          .virtual_device("macvlan", "mac0", "10.1.0.1/16")
                          .on("eth0");
  EXPECT_EQ(nested.taken(), "eth0=10.0.0.0/16");
  const Host pod =
      Host().loopback().virtual_device("veth", "eth0", "10.244.1.7/32").nic("net1", "10.1.0.7/16");
  EXPECT_EQ(pod.taken(), "net1=10.1.0.0/16") << "a NIC that was given to the pod";
}

TEST(NicSelector, TakesABondAndNotItsMembers) {
  const Host host = Host()
                        .virtual_device("bond", "bond0", "10.0.0.1/16")
                        .nic("eth0")
                        .port_of("bond0")
                        .nic("eth1", "10.1.0.1/16")
                        .port_of("bond0")
                        .nic("eth2", "10.2.0.1/16");
  EXPECT_EQ(host.taken(), "bond0=10.0.0.0/16 eth2=10.2.0.0/16");
  EXPECT_EQ(host.why_left("eth1"), "a port of bond0, which stands for it");
}

TEST(NicSelector, TakesABridgeThatHasANic) {
  const Host host = Host()
                        .virtual_device("bridge", "vmbr0", "10.0.0.1/16")
                        .virtual_device("bond", "bond0")
                        .port_of("vmbr0")
                        .nic("eth0")
                        .port_of("bond0")
                        .virtual_device("tun", "tap100")
                        .port_of("vmbr0");
  EXPECT_EQ(host.taken(), "vmbr0=10.0.0.0/16");
}

TEST(NicSelector, TakesThePortsOfAVirtualRouter) {
  const Host host = Host().virtual_device("vrf", "blue").nic("eth0", "10.0.0.1/16").port_of("blue");
  EXPECT_EQ(host.taken(), "eth0=10.0.0.0/16");
}

TEST(NicSelector, TakesOneInterfacePerWire) {
  const Host tagged = Host()
                          .nic("eth0")
                          .virtual_device("vlan", "eth0.20", "10.20.0.1/16")
                          .on("eth0")
                          .virtual_device("vlan", "eth0.10", "10.10.0.1/16")
                          .on("eth0");
  EXPECT_EQ(tagged.taken(), "eth0.10=10.10.0.0/16");
  EXPECT_EQ(tagged.why_left("eth0.20"), "on the same wire as eth0.10, which is taken");
  const Host untagged = Host()
                            .nic("eth0", "10.90.0.1/16")
                            .virtual_device("vlan", "eth0.10", "10.10.0.1/16")
                            .on("eth0")
                            .nic("eth1")
                            .virtual_device("vlan", "eth1.10", "10.11.0.1/16")
                            .on("eth1")
                            .virtual_device("macvlan", "mac0", "10.91.0.1/16")
                            .on("eth0");
  EXPECT_EQ(untagged.taken(), "eth1.10=10.11.0.0/16 eth0=10.90.0.0/16");
  const Host bridged = Host()
                           .virtual_device("bridge", "br0", "10.0.0.1/16")
                           .nic("eth0")
                           .port_of("br0")
                           .virtual_device("vlan", "br0.7", "10.7.0.1/16")
                           .on("br0");
  EXPECT_EQ(bridged.taken(), "br0=10.0.0.0/16");
}

TEST(NicSelector, AnInterfaceThatIsDownTakesNoWire) {
  const Host host = Host()
                        .nic("eth0", "10.0.0.1/16")
                        .no_carrier()
                        .virtual_device("vlan", "eth0.10", "10.10.0.1/16")
                        .on("eth0");
  EXPECT_EQ(host.taken(), "eth0.10=10.10.0.0/16");
}

TEST(NicSelector, AcceptsADeviceThatIsStackedOnItself) {
  Host host;
  host.virtual_device("vlan", "a", "10.0.0.1/16").on("a");  // no kernel allows this
  EXPECT_EQ(host.taken(), "a=10.0.0.0/16");
}

TEST(NicSelector, LeavesSlowOnes) {
  const Host host = Host()
                        .nic("eno1", "10.0.0.1/16")
                        .speed(1000)
                        .nic("ens1", "10.1.0.1/16")
                        .speed(25'000)
                        .nic("ens2", "10.2.0.1/16")
                        .speed(100'000)
                        .nic("ens3", "10.3.0.1/16");
  EXPECT_EQ(host.taken(), "ens1=10.1.0.0/16 ens2=10.2.0.0/16 ens3=10.3.0.0/16");
  EXPECT_EQ(host.why_left("eno1"), "slow: 1000 Mbit/s, where the fastest has 100000");
  EXPECT_EQ(Host().nic("eth0", "10.0.0.1/16").speed(10).taken(), "eth0=10.0.0.0/16");
  const Host unplugged = Host()
                             .nic("eth0", "10.0.0.1/16")
                             .speed(1000)
                             .nic("eth1", "10.1.0.1/16")
                             .speed(100'000)
                             .no_carrier();
  EXPECT_EQ(unplugged.taken(), "eth0=10.0.0.0/16") << "it is the fastest that there is";
}

TEST(NicSelector, UnwantedInterfacesAreLeft) {
  Host host = Host()
                  .nic("eno1", "10.0.0.1/16")
                  .speed(100'000)
                  .nic("ens1", "10.1.0.1/16")
                  .speed(10'000)
                  .nic("ens2", "10.1.0.2/16")
                  .speed(10'000);
  EXPECT_EQ(host.taken(), "eno1=10.0.0.0/16");
  host.unwanted({"eno*"});
  EXPECT_EQ(host.taken(), "ens1=10.1.0.0/16 ens2=10.1.0.0/16#2")
      << "eno1 does not count as the fastest";
  EXPECT_EQ(host.why_left("eno1"), "not wanted: !eno*");
  host.unwanted({"eno?", "ens1", "nothing"});
  EXPECT_EQ(host.taken(), "ens2=10.1.0.0/16#2") << "the other rails keep their names";
}

Host dgx() {
  Host host;
  host.loopback().nic("eno3", "10.20.0.5/22").speed(1000).pci("0000:01:00.0", 0);
  host.nic("bmc_redfish0", "169.254.0.18/16").speed(100).pci("0000:02:00.0", 0);
  host.virtual_device("bridge", "docker0", "172.17.0.1/16").no_carrier();
  for (int i = 0; i < 8; ++i) {
    host.nic(absl::StrCat("ibp", i), absl::StrCat("10.10.", i, ".5/24")).speed(400'000);
    host.pci(absl::StrCat("0000:", i < 5 ? "1" : "9", i, ":00.0"), i / 4);
  }
  return host;
}

TEST(NicSelector, TakesTheDataNicsOfALargeMachine) {
  EXPECT_EQ(dgx().taken(),
            "ibp0=10.10.0.0/24 ibp1=10.10.1.0/24 ibp2=10.10.2.0/24 ibp3=10.10.3.0/24"
            " ibp4=10.10.4.0/24 ibp5=10.10.5.0/24 ibp6=10.10.6.0/24 ibp7=10.10.7.0/24");
}

TEST(NicSelector, PrefersNearNicsUnderALimit) {
  EXPECT_EQ(dgx().taken(4, {1}),
            "ibp4=10.10.4.0/24 ibp5=10.10.5.0/24 ibp6=10.10.6.0/24 ibp7=10.10.7.0/24");
  EXPECT_EQ(dgx().taken(2, {0, 1}), "ibp0=10.10.0.0/24 ibp1=10.10.1.0/24");
  EXPECT_EQ(dgx().taken(2, {}), "ibp0=10.10.0.0/24 ibp1=10.10.1.0/24");
  EXPECT_EQ(dgx().taken(5, {1}),
            "ibp0=10.10.0.0/24 ibp4=10.10.4.0/24 ibp5=10.10.5.0/24 ibp6=10.10.6.0/24"
            " ibp7=10.10.7.0/24");
}

TEST(NicSelector, PrefersSeparateCardsToNearNicsUnderALimit) {
  const Host host = Host()
                        .nic("eth0", "10.0.0.1/16")
                        .pci("0000:3b:00.0", 0)
                        .nic("eth1", "10.1.0.1/16")
                        .pci("0000:3b:00.1", 0)
                        .nic("eth2", "10.2.0.1/16")
                        .pci("0000:af:00.0", 1);
  EXPECT_EQ(host.taken(2, {0}), "eth0=10.0.0.0/16 eth2=10.2.0.0/16");
  EXPECT_EQ(host.taken(3, {0}), "eth0=10.0.0.0/16 eth1=10.1.0.0/16 eth2=10.2.0.0/16");
  EXPECT_EQ(host.taken(1, {1}), "eth2=10.2.0.0/16");
}

// ---- What the rails are called -----------------------------------------------------------------

TEST(NicSelector, SeveralOnOneSubnetAreNumberedByName) {
  const Host host = Host()
                        .nic("eth10", "10.0.0.3/16")
                        .nic("eth2", "10.0.0.2/16")
                        .nic("eth1", "10.0.0.1/16")
                        .nic("eth0", "10.1.0.1/16");
  EXPECT_EQ(host.taken(),
            "eth1=10.0.0.0/16 eth2=10.0.0.0/16#2 eth10=10.0.0.0/16#3 eth0=10.1.0.0/16");
}

TEST(NicSelector, ACableThatIsPulledRenamesNoRail) {
  const Host host = Host().nic("eth0", "10.0.0.1/16").no_carrier().nic("eth1", "10.0.0.2/16");
  EXPECT_EQ(host.taken(), "eth1=10.0.0.0/16#2");
}

TEST(NicSelector, AnAddressWithoutASubnetGoesByItsInterface) {
  const Host host = Host()
                        .nic("ens4", "10.128.0.7/32")
                        .nic("ens5", "fd00::7/128")
                        .nic("ens6", "2001:db8:1234:5678:9abc:def0:1234:1/112")
                        .nic("ens7", "2001:db8:1234:5678:9abc:def0:1234:1/64");
  EXPECT_EQ(host.taken(), "ens7=2001:db8:1234:5678::/64 ens4=ens4 ens5=ens5 ens6=ens6");
}

// ---- Which rails two hosts share ---------------------------------------------------------------

// The rails that the hosts share, as "name on one=name on two ...". Checks that both sides agree.
std::string pairs(const ChosenInterfaces& one, const ChosenInterfaces& two) {
  std::string text;
  const auto found = pair_rails(one, two);
  const auto mirrored = pair_rails(two, one);
  EXPECT_EQ(found.size(), mirrored.size());
  for (const auto& [mine, theirs] : found) {
    EXPECT_TRUE(one.contains(mine));
    const auto back = mirrored.find(theirs);
    EXPECT_TRUE(back != mirrored.end() && back->second == mine) << mine << " " << theirs;
    absl::StrAppend(&text, text.empty() ? "" : " ", mine, "=", theirs);
  }
  return text;
}

TEST(RailPairs, GoBySubnetWhateverTheInterfacesAreCalled) {
  const Host one = Host().nic("eth0", "10.0.0.1/16").nic("eth1", "10.1.0.1/16");
  const Host two = Host().nic("ens3", "10.0.0.2/16").nic("ens4", "10.1.0.2/16");
  const Host crossed = Host().nic("eth1", "10.0.0.3/16").nic("eth0", "10.1.0.3/16");
  const std::string both = "10.0.0.0/16=10.0.0.0/16 10.1.0.0/16=10.1.0.0/16";
  EXPECT_EQ(pairs(one.rails(), two.rails()), both);
  EXPECT_EQ(pairs(one.rails(), crossed.rails()), both);
}

TEST(RailPairs, AHostMayLackAPort) {
  const Host one = Host().nic("eth0", "10.0.0.1/16").nic("eth1", "10.1.0.1/16");
  EXPECT_EQ(pairs(one.rails(), Host().nic("eth1", "10.1.0.2/16").rails()),
            "10.1.0.0/16=10.1.0.0/16");
  const Host same_subnet = Host().nic("eth0", "10.0.0.1/16").nic("eth1", "10.0.0.2/16");
  EXPECT_EQ(pairs(same_subnet.rails(), Host().nic("eth1", "10.0.0.3/16").rails()),
            "10.0.0.0/16=10.0.0.0/16");
  EXPECT_EQ(pairs(one.rails(), Host().nic("ens9", "10.9.0.1/16").rails()), "");
}

TEST(RailPairs, InARoutedNetworkGoByTheInterfacesNames) {
  const Host one = Host().nic("eth0", "10.1.1.1/24").nic("eth1", "10.2.1.1/24");
  const Host two = Host().nic("eth0", "10.1.2.1/24").nic("eth1", "10.2.2.1/24");
  EXPECT_EQ(pairs(one.rails(), two.rails()), "10.1.1.0/24=10.1.2.0/24 10.2.1.0/24=10.2.2.0/24");
  const Host same_rack = Host().nic("eth0", "10.1.1.2/24").nic("eth1", "10.2.2.2/24");
  EXPECT_EQ(pairs(one.rails(), same_rack.rails()),
            "10.1.1.0/24=10.1.1.0/24 10.2.1.0/24=10.2.2.0/24");
  // A common subnet takes precedence: eth1 of this host is on the network of eth0 of the other.
  const Host crossed = Host().nic("eth1", "10.1.1.3/24").nic("eth0", "10.3.1.3/24");
  EXPECT_EQ(pairs(one.rails(), crossed.rails()), "10.1.1.0/24=10.1.1.0/24");
}

TEST(RailPairs, RailsThatUsersNamedMatchByNameOnly) {
  EXPECT_EQ(pairs({{"blue", ""}, {"red", ""}}, {{"red", ""}, {"green", ""}}), "red=red");
  EXPECT_EQ(pairs({{"blue", ""}}, {{"10.0.0.0/16", "eth0"}}), "");
  EXPECT_EQ(pairs({{"eth0", ""}}, {{"10.0.0.0/16", "eth0"}}), "");
  EXPECT_EQ(pairs({}, {{"red", ""}}), "");
}

}  // namespace
}  // namespace nezha
