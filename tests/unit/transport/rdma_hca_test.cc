// SPDX-License-Identifier: Apache-2.0
#ifdef NEZHA_HAS_RDMA
#include <arpa/inet.h>
#include <net/if.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "transport/rdma/hca.h"

namespace nezha::rdma {
namespace {

// ---- A machine in words ------------------------------------------------------------------------

Gid gid_of(int index, const std::string& host, uint32_t type, int interface) {
  Gid gid;
  gid.index = index;
  gid.type = type;
  gid.interface = interface;
  const std::string whole = absl::StrContains(host, ':') ? host : absl::StrCat("::ffff:", host);
  EXPECT_EQ(inet_pton(AF_INET6, whole.c_str(), gid.gid.raw), 1) << host;
  return gid;
}

net::AssignedAddress assigned(int index, const std::string& host) {
  net::AssignedAddress it;
  it.index = index;
  it.address = *net::Address::parse_host(host);
  if (it.address.is_link_local()) it.address.set_scope(static_cast<unsigned>(index));
  return it;
}

constexpr int kEth2 = 5;
constexpr uint32_t kV1 = IBV_GID_TYPE_ROCE_V1;
constexpr uint32_t kV2 = IBV_GID_TYPE_ROCE_V2;

// A NIC with two ports. The first port has a network interface with the usual table of GIDs.
Machine roce_machine() {
  Port first;
  first.number = 1;
  first.state = IBV_PORT_ACTIVE;
  const std::string local = "fe80::1";
  first.gids = {gid_of(0, local, kV1, kEth2),      gid_of(1, local, kV2, kEth2),
                gid_of(2, "10.1.0.7", kV1, kEth2), gid_of(3, "10.1.0.7", kV2, kEth2),
                gid_of(4, "fd00::7", kV1, kEth2),  gid_of(5, "fd00::7", kV2, kEth2)};
  Port second;
  second.number = 2;
  second.state = IBV_PORT_DOWN;
  Hca hca;
  hca.name = "mlx5_0";
  hca.ports = {first, second};
  Machine machine;
  machine.hcas = {hca};
  machine.kernel_devices = {{"mlx5_0"}};
  machine.interfaces = {{1, "lo"}, {kEth2, "eth2"}};
  machine.addresses = {assigned(1, "127.0.0.1"), assigned(kEth2, "10.1.0.7"),
                       assigned(kEth2, "fd00::7"), assigned(kEth2, local)};
  return machine;
}

Port& port_of(Machine& machine) { return machine.hcas.front().ports.front(); }

void expect_error(const Wish& wish, const Machine& machine, const std::vector<std::string>& parts) {
  const auto choice = choose(wish, machine);
  ASSERT_FALSE(choice.ok()) << choice->why;
  for (const std::string& part : parts) {
    EXPECT_TRUE(absl::StrContains(choice.status().message(), part))
        << part << ": " << choice.status();
  }
}

int chosen_gid(const Wish& wish, const Machine& machine) {
  const auto choice = choose(wish, machine);
  EXPECT_TRUE(choice.ok()) << choice.status();
  return choice.ok() ? choice->gid.index : -1;
}

// ---- Wish --------------------------------------------------------------------------------------

TEST(RdmaWish, NamesADeviceAndPerhapsAPort) {
  const auto plain = Wish::parse("mlx5_0");
  ASSERT_TRUE(plain.ok());
  EXPECT_EQ(plain->device, "mlx5_0");
  EXPECT_EQ(plain->port, 0);
  const auto full = Wish::parse("rocep3s0f1:2");
  ASSERT_TRUE(full.ok());
  EXPECT_EQ(full->device, "rocep3s0f1");
  EXPECT_EQ(full->port, 2);
  for (const std::string bad : {"", ":1", "a:", "a:0", "a:256", "a:-1", "a:x", "a:1:2"}) {
    const auto wish = Wish::parse(bad);
    EXPECT_TRUE(absl::IsInvalidArgument(wish.status())) << bad;
    EXPECT_TRUE(absl::StrContains(wish.status().message(), "mlx5_0:1")) << wish.status();
  }
}

TEST(RdmaWish, AGidIsAnIndex) {
  EXPECT_EQ(*Wish::parse_gid("0"), 0);
  EXPECT_EQ(*Wish::parse_gid("255"), 255);
  for (const std::string bad : {"", "-1", "65536", "x", "1x"}) {
    EXPECT_TRUE(absl::IsInvalidArgument(Wish::parse_gid(bad).status())) << bad;
  }
}

// ---- The choice --------------------------------------------------------------------------------

TEST(RdmaChoice, TakesTheInterfacesIpv4AddressByRoceV2) {
  const auto choice = choose({.device = "mlx5_0"}, roce_machine());
  ASSERT_TRUE(choice.ok()) << choice.status();
  EXPECT_EQ(choice->device, "mlx5_0");
  EXPECT_EQ(choice->port.number, 1);
  EXPECT_EQ(choice->gid.index, 3);
  EXPECT_EQ(choice->via, "eth2");
  for (const char* part : {"port 1 of mlx5_0", "3 (10.1.0.7, RoCE v2)", "eth2's address"}) {
    EXPECT_TRUE(absl::StrContains(choice->why, part)) << choice->why;
  }
}

TEST(RdmaChoice, TakesItsInterfacesAddressForAnIwarpDevice) {
  Machine machine = roce_machine();
  machine.hcas[0].is_iwarp = true;
  port_of(machine).gids = {gid_of(0, "fe80::1", Gid::kIwarp, kEth2),
                           gid_of(1, "10.1.0.7", Gid::kIwarp, kEth2),
                           gid_of(2, "fd00::7", Gid::kIwarp, kEth2)};
  const auto choice = choose({.device = "mlx5_0"}, machine);
  ASSERT_TRUE(choice.ok()) << choice.status();
  EXPECT_TRUE(choice->is_iwarp);
  EXPECT_EQ(choice->gid.str(), "1 (10.1.0.7, iWARP)");
  EXPECT_EQ(choice->via, "eth2");
  EXPECT_EQ(chosen_gid({.device = "mlx5_0", .address = "fd00::7"}, machine), 2);
  EXPECT_FALSE(choose({.device = "mlx5_0"}, roce_machine())->is_iwarp);
}

TEST(RdmaChoice, TakesRoceV1WhereThereIsNoOther) {
  Machine machine = roce_machine();
  std::erase_if(port_of(machine).gids, [](const Gid& gid) { return gid.type == kV2; });
  EXPECT_EQ(chosen_gid({.device = "mlx5_0"}, machine), 2);
}

TEST(RdmaChoice, TakesTheGlobalIpv6AddressWithoutAnIpv4One) {
  Machine machine = roce_machine();
  std::erase_if(port_of(machine).gids,
                [](const Gid& gid) { return gid.address().family() == AF_INET; });
  std::erase_if(machine.addresses, [](const net::AssignedAddress& it) {
    return it.index == kEth2 && it.address.family() == AF_INET;
  });
  EXPECT_EQ(chosen_gid({.device = "mlx5_0"}, machine), 5);
}

TEST(RdmaChoice, PrefersAnAddressOfTheInterfaceToABetterKind) {
  Machine machine = roce_machine();
  std::erase_if(machine.addresses, [](const net::AssignedAddress& it) {
    return it.index == kEth2 && it.address.family() == AF_INET;
  });
  EXPECT_EQ(chosen_gid({.device = "mlx5_0"}, machine), 5);
}

TEST(RdmaChoice, TakesTheAddressThatATcpRailTakes) {
  Machine machine = roce_machine();
  port_of(machine).gids.push_back(gid_of(6, "10.1.0.8", kV2, kEth2));
  machine.addresses[1].is_deprecated = true;
  machine.addresses.push_back(assigned(kEth2, "10.1.0.8"));
  EXPECT_EQ(chosen_gid({.device = "mlx5_0"}, machine), 6);
}

TEST(RdmaChoice, TakesTheAddressThatTheRailNames) {
  EXPECT_EQ(chosen_gid({.device = "mlx5_0", .address = "fd00::7"}, roce_machine()), 5);
  expect_error({.device = "mlx5_0", .address = "10.1.0.9"}, roce_machine(),
               {"10.1.0.9", "3 (10.1.0.7, RoCE v2)", "name the address"});
}

TEST(RdmaChoice, TakesTheGidThatTheRailNames) {
  const auto choice = choose({.device = "mlx5_0", .gid = 1}, roce_machine());
  ASSERT_TRUE(choice.ok()) << choice.status();
  EXPECT_EQ(choice->gid.index, 1);
  EXPECT_EQ(choice->via, "eth2");
  EXPECT_TRUE(absl::StrContains(choice->why, "the rail names it")) << choice->why;
  expect_error({.device = "mlx5_0", .gid = 9}, roce_machine(),
               {"no GID 9", "0 (fe80::1, RoCE v1)", "gid="});
}

TEST(RdmaChoice, TakesALinkLocalAddressWhereThereIsNoOther) {
  Machine machine = roce_machine();
  port_of(machine).gids.resize(2);
  std::erase_if(machine.addresses,
                [](const net::AssignedAddress& it) { return it.index == kEth2; });
  const auto choice = choose({.device = "mlx5_0"}, machine);
  ASSERT_TRUE(choice.ok()) << choice.status();
  EXPECT_EQ(choice->gid.index, 1);
  EXPECT_TRUE(absl::StrContains(choice->why, "same segment alone")) << choice->why;
}

TEST(RdmaChoice, TakesTheInterfaceThatTheRailNamesForTheHandshake) {
  Machine machine = roce_machine();
  machine.interfaces[7] = "eth2.5";
  machine.addresses.push_back(assigned(7, "10.5.0.7"));
  port_of(machine).gids.push_back(gid_of(6, "10.5.0.7", kV2, 7));
  const auto vlan = choose({.device = "mlx5_0", .via = "eth2.5"}, machine);
  ASSERT_TRUE(vlan.ok()) << vlan.status();
  EXPECT_EQ(vlan->gid.index, 6) << "the interface's own GID";
  EXPECT_EQ(vlan->via, "eth2.5");
  const auto other = choose({.device = "mlx5_0", .via = "lo"}, machine);
  ASSERT_TRUE(other.ok()) << other.status();
  EXPECT_EQ(other->gid.index, 3) << "an interface without GIDs leaves the choice as it is";
  EXPECT_EQ(other->via, "lo");
}

TEST(RdmaChoice, InAnotherNetworkNamespaceTheHandshakesInterfaceMustBeNamed) {
  Machine machine = roce_machine();
  port_of(machine).gids.erase(port_of(machine).gids.begin(), port_of(machine).gids.begin() + 2);
  machine.interfaces = {{1, "lo"}, {kEth2, "veth0"}};  // here another interface has the number
  machine.addresses = {assigned(kEth2, "10.9.0.1")};
  expect_error({.device = "mlx5_0"}, machine, {"network namespace", "10.1.0.7", "via=INTERFACE"});
  const auto choice = choose({.device = "mlx5_0", .via = "veth0"}, machine);
  ASSERT_TRUE(choice.ok()) << choice.status();
  EXPECT_EQ(choice->gid.index, 3);
  EXPECT_EQ(choice->via, "veth0");
}

TEST(RdmaChoice, InfiniBandHasItsFirstGidAndALid) {
  Machine machine = roce_machine();
  Port& port = port_of(machine);
  port.is_infiniband = true;
  port.lid = 17;
  port.gids = {gid_of(0, "fe80::2:c903:1", IBV_GID_TYPE_IB, 0),
               gid_of(1, "fd00::2:c903:1", IBV_GID_TYPE_IB, 0)};
  expect_error({.device = "mlx5_0"}, machine, {"port 1 of mlx5_0", "via=INTERFACE"});
  const auto choice = choose({.device = "mlx5_0", .via = "ib0"}, machine);
  ASSERT_TRUE(choice.ok()) << choice.status();
  EXPECT_EQ(choice->gid.index, 0);
  EXPECT_EQ(choice->via, "ib0");
  EXPECT_TRUE(absl::StrContains(choice->why, "LID is 17")) << choice->why;
  port.state = IBV_PORT_INIT;
  expect_error({.device = "mlx5_0", .via = "ib0"}, machine, {"subnet manager", "opensm"});
}

TEST(RdmaChoice, TakesThePortThatIsActive) {
  Machine machine = roce_machine();
  std::swap(machine.hcas[0].ports[0], machine.hcas[0].ports[1]);
  EXPECT_EQ(choose({.device = "mlx5_0"}, machine)->port.number, 1);
  EXPECT_EQ(name_of(machine.hcas[0], machine.hcas[0].ports[1]), "mlx5_0:1");
}

TEST(RdmaChoice, PortsThatCannotBeUsedSayWhatToDo) {
  Machine machine = roce_machine();
  expect_error({.device = "mlx5_0", .port = 3}, machine, {"no port 3", "1, 2", "name one"});
  expect_error({.device = "mlx5_0", .port = 2}, machine, {"port 2 of mlx5_0 is down", "cable"});
  port_of(machine).state = IBV_PORT_DOWN;
  expect_error({.device = "mlx5_0"}, machine, {"port 1 of mlx5_0 is down", "ip link set eth2 up"});
  port_of(machine).state = IBV_PORT_ACTIVE;
  port_of(machine).gids.clear();
  expect_error({.device = "mlx5_0"}, machine, {"port 1 of mlx5_0 has no GID", "ip address add"});
}

TEST(RdmaChoice, DevicesThatCannotBeUsedSayWhatToDo) {
  Machine machine = roce_machine();
  expect_error({.device = "mlx5_1"}, machine, {"'mlx5_1'", "there are: mlx5_0", "name one"});
  machine.hcas[0].is_iwarp = true;
  expect_error({.device = "mlx5_0", .gid = 1}, machine, {"iWARP", "no table", "address=ADDRESS"});
  machine.hcas[0].error = absl::PermissionDeniedError("it is locked");
  expect_error({.device = "mlx5_0"}, machine, {"it is locked"});
  machine.hcas.clear();
  expect_error({.device = "mlx5_0"}, machine, {"(mlx5_0)", "ib_uverbs", "ibverbs-providers"});
  machine.kernel_devices->clear();
  expect_error({.device = "mlx5_0"}, machine, {"no RDMA device", "load the driver"});
  machine.kernel_devices.reset();
  expect_error({.device = "mlx5_0"}, machine,
               {"kernel has no RDMA", "load the driver", "tcp rail"});
}

// ---- What libibverbs is asked ------------------------------------------------------------------

struct FakeDevice {
  ibv_device device{};
  ibv_context context{};
  int open_error = 0;
  ibv_port_attr port{};
  std::vector<ibv_gid_entry> gids;
  int opened = 0;
  int closed = 0;
};

std::vector<FakeDevice>& devices() {
  static auto& all = *new std::vector<FakeDevice>;
  return all;
}

FakeDevice& device_of(ibv_context* context) {
  return *std::find_if(devices().begin(), devices().end(),
                       [&](FakeDevice& it) { return &it.context == context; });
}

ibv_device** fake_list(int* count) {
  auto** list = new ibv_device*[devices().size() + 1];
  for (size_t i = 0; i < devices().size(); ++i) list[i] = &devices()[i].device;
  *count = static_cast<int>(devices().size());
  return list;
}

ibv_context* fake_open(ibv_device* device) {
  for (FakeDevice& it : devices()) {
    if (&it.device != device) continue;
    errno = it.open_error;
    if (it.open_error != 0) return nullptr;
    ++it.opened;
    return &it.context;
  }
  return nullptr;
}

Verbs fake_hca_verbs() {
  Verbs verbs{};
  verbs.get_device_list = &fake_list;
  verbs.free_device_list = [](ibv_device** list) { delete[] list; };
  verbs.get_device_name = [](ibv_device* device) -> const char* { return device->name; };
  verbs.open_device = &fake_open;
  verbs.close_device = [](ibv_context* context) {
    ++device_of(context).closed;
    return 0;
  };
  verbs.query_device = [](ibv_context*, ibv_device_attr* attributes) {
    attributes->phys_port_cnt = 1;
    return 0;
  };
  verbs.query_port = [](ibv_context* context, uint8_t number, ibv_port_attr* attributes) {
    if (number != 1) return EINVAL;
    *attributes = device_of(context).port;
    return 0;
  };
  verbs.query_gid_table = [](ibv_context* context, ibv_gid_entry* entries, size_t count) {
    const auto& gids = device_of(context).gids;
    const size_t given = std::min(count, gids.size());
    std::copy_n(gids.begin(), given, entries);
    return static_cast<ssize_t>(given);
  };
  return verbs;
}

FakeDevice fake_device(const std::string& name) {
  FakeDevice fake;
  std::strncpy(fake.device.name, name.c_str(), sizeof fake.device.name - 1);
  fake.device.transport_type = IBV_TRANSPORT_IB;
  fake.port.state = IBV_PORT_ACTIVE;
  fake.port.active_mtu = IBV_MTU_4096;
  fake.port.active_speed = 32;  // EDR
  fake.port.active_width = 2;   // 4 lanes
  fake.port.link_layer = IBV_LINK_LAYER_ETHERNET;
  fake.port.gid_tbl_len = 4;
  const Gid gid = gid_of(2, "127.0.0.1", kV2, static_cast<int>(if_nametoindex("lo")));
  fake.gids = {{gid.gid, 2, 1, gid.type, static_cast<uint32_t>(gid.interface)}};
  return fake;
}

class RdmaMachine : public ::testing::Test {
 protected:
  void SetUp() override { devices().clear(); }
};

TEST_F(RdmaMachine, HasDevicesPortsAndGids) {
  devices() = {fake_device("rxe1"), fake_device("rxe0"), fake_device("siw0")};
  devices()[0].open_error = EACCES;
  devices()[2].device.transport_type = IBV_TRANSPORT_IWARP;
  const auto machine = Machine::look(fake_hca_verbs());
  ASSERT_TRUE(machine.ok()) << machine.status();
  ASSERT_EQ(machine->hcas.size(), 3);
  const Hca& first = machine->hcas[0];
  EXPECT_EQ(first.name, "rxe0");
  ASSERT_EQ(first.ports.size(), 1);
  EXPECT_TRUE(first.ports[0].is_active());
  EXPECT_FALSE(first.ports[0].is_infiniband);
  EXPECT_EQ(first.ports[0].speed, 12.5e9);
  EXPECT_EQ(first.ports[0].mtu, 4096);
  ASSERT_EQ(first.ports[0].gids.size(), 1);
  EXPECT_EQ(first.ports[0].gids[0].str(), "2 (127.0.0.1, RoCE v2)");
  EXPECT_FALSE(first.is_iwarp);
  const absl::Status denied = machine->hcas[1].error;
  EXPECT_TRUE(absl::IsPermissionDenied(denied));
  EXPECT_TRUE(absl::StrContains(denied.message(), "/dev/infiniband/uverbs")) << denied;
  EXPECT_TRUE(machine->hcas[2].is_iwarp);
  EXPECT_EQ(name_of(first, first.ports[0]), "rxe0") << "there is no other port";
  const auto choice = choose({.device = "rxe0"}, *machine);
  ASSERT_TRUE(choice.ok()) << choice.status();
  EXPECT_EQ(choice->via, "lo");
  for (const FakeDevice& it : devices()) EXPECT_EQ(it.opened, it.closed) << it.device.name;
}

TEST_F(RdmaMachine, OpensNoOtherDeviceThanTheOneThatIsAskedFor) {
  devices() = {fake_device("rxe1"), fake_device("rxe0")};
  const auto machine = Machine::look(fake_hca_verbs(), "rxe0");
  ASSERT_TRUE(machine.ok()) << machine.status();
  EXPECT_TRUE(choose({.device = "rxe0"}, *machine).ok());
  EXPECT_EQ(devices()[0].opened, 0);
  const auto absent = choose({.device = "rxe2"}, *machine).status();
  EXPECT_TRUE(absl::StrContains(absent.message(), "there are: rxe0, rxe1")) << absent;
}

TEST_F(RdmaMachine, MayHaveNoDevices) {
  Verbs verbs = fake_hca_verbs();
  verbs.get_device_list = [](int* count) -> ibv_device** {
    *count = 0;
    errno = ENOSYS;
    return nullptr;
  };
  const auto bare = Machine::look(verbs, "", "/no/such/folder");
  ASSERT_TRUE(bare.ok()) << bare.status();
  EXPECT_TRUE(bare->hcas.empty());
  EXPECT_FALSE(bare->kernel_devices.has_value());
  std::string folder = ::testing::TempDir() + "nezha-hca-XXXXXX";
  ASSERT_NE(mkdtemp(folder.data()), nullptr);
  const std::string device = folder + "/mlx5_0";
  ASSERT_EQ(mkdir(device.c_str(), 0700), 0);
  const auto driverless = Machine::look(verbs, "", folder);
  ASSERT_TRUE(driverless.ok());
  EXPECT_EQ(driverless->kernel_devices, std::vector<std::string>{"mlx5_0"});
  rmdir(device.c_str());
  rmdir(folder.c_str());
}

TEST(RdmaCpus, AreThoseThatTheKernelNamesNearTheDevice) {
  std::string folder = ::testing::TempDir() + "nezha-hca-XXXXXX";
  ASSERT_NE(mkdtemp(folder.data()), nullptr);
  std::filesystem::create_directories(folder + "/mlx5_0/device");
  std::ofstream(folder + "/mlx5_0/device/local_cpulist") << "2-3,8\n";
  EXPECT_EQ(near_cpus("mlx5_0", folder), (Cpus{2, 3, 8}));
  EXPECT_TRUE(near_cpus("rxe0", folder).empty());
  std::filesystem::remove_all(folder);
}

TEST_F(RdmaMachine, DevicesAreOpenedByName) {
  devices() = {fake_device("rxe0"), fake_device("rxe1")};
  const Verbs verbs = fake_hca_verbs();
  const auto opened = open_device(verbs, "rxe1");
  ASSERT_TRUE(opened.ok()) << opened.status();
  EXPECT_EQ(*opened, &devices()[1].context);
  EXPECT_TRUE(absl::IsNotFound(open_device(verbs, "rxe2").status()));
  devices()[0].open_error = ENODEV;
  EXPECT_TRUE(absl::IsUnavailable(open_device(verbs, "rxe0").status()));
}

// Uses the real libibverbs and whatever devices this machine has.
TEST_F(RdmaMachine, LooksAtTheRealMachine) {
  const auto machine = Machine::look(libibverbs());
  ASSERT_TRUE(machine.ok()) << machine.status();
  const auto lo = static_cast<int>(if_nametoindex("lo"));
  EXPECT_EQ(machine->interfaces.at(lo), "lo");
  for (const Hca& hca : machine->hcas) EXPECT_FALSE(hca.name.empty());
}

}  // namespace
}  // namespace nezha::rdma
#endif
