// SPDX-License-Identifier: Apache-2.0
#include "context/rails.h"

#include <cstdlib>
#include <iterator>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace nezha {
namespace {

TEST(RailUri, HasAKindAnInterfaceAndOptions) {
  const auto plain = RailUri::parse("tcp:eth0");
  ASSERT_TRUE(plain.ok());
  EXPECT_EQ(plain->kind, "tcp");
  EXPECT_EQ(plain->interface, "eth0");
  EXPECT_TRUE(plain->options.empty());
  const auto full = RailUri::parse("tcp:eth1.5:0?rail=blue&family=6&x=a=b&flag");
  ASSERT_TRUE(full.ok());
  EXPECT_EQ(full->interface, "eth1.5:0");
  const std::map<std::string, std::string> options{
      {"rail", "blue"}, {"family", "6"}, {"x", "a=b"}, {"flag", ""}};
  EXPECT_EQ(full->options, options);
}

TEST(RailUri, OthersAreRefusedAndNamed) {
  for (const std::string bad : {"", "tcp", "tcp:", ":eth0", "tcp:?rail=a", "tcp:eth0?a=1&a=2"}) {
    const auto uri = RailUri::parse(bad);
    EXPECT_TRUE(absl::IsInvalidArgument(uri.status())) << bad;
    EXPECT_NE(uri.status().message().find("'" + bad + "'"), absl::string_view::npos) << bad;
  }
}

TEST(DeviceFactory, UnknownKindsAndOptionsNameTheKnownOnes) {
  const auto kind = device_factory("myrinet:mx0");
  EXPECT_TRUE(absl::IsInvalidArgument(kind.status()));
  EXPECT_NE(kind.status().message().find("tcp"), absl::string_view::npos);
  for (const std::string bad :
       {"tcp:lo?speed=1", "tcp:lo?family=5", "tcp:lo?family", "tcp:lo?rail=", "tcp:lo?rail=a b",
        "tcp:lo?address=", "tcp:lo?address=[::1]", "tcp:lo?address=127.0.0.1&family=4",
        "tcp:lo?rail=12345678901234567890123456789012", "tcp:lo?cpus", "tcp:lo?cpus=3-1"}) {
    EXPECT_TRUE(absl::IsInvalidArgument(device_factory(bad).status())) << bad;
  }
  EXPECT_NE(device_factory("tcp:lo?speed=1").status().message().find("family"),
            absl::string_view::npos);
}

struct NoAcceptor final : Acceptor {
  wire::Welcome on_hello(Rail, const wire::Hello&) override { return {}; }
  void on_accepted(Rail, const wire::Hello&, std::unique_ptr<Link>) override {}
  void on_carrier(Rail, bool, absl::string_view) override {}
};

#ifdef NEZHA_HAS_RDMA

TEST(DeviceFactory, OptionsOfRdmaAreChecked) {
  for (const std::string good : {"rdma:mlx5_0", "rdma:mlx5_0:2", "rdma:rxe0?gid=1&rail=a",
                                 "rdma:rxe0?address=10.0.0.1", "rdma:rxe0?via=eth0"}) {
    EXPECT_TRUE(device_factory(good).ok()) << good;
  }
  for (const std::string bad :
       {"rdma:mlx5_0:0", "rdma:mlx5_0:x", "rdma:rxe0?gid=-1", "rdma:rxe0?gid",
        "rdma:rxe0?via=", "rdma:rxe0?address=eth0", "rdma:rxe0?rail=a b", "rdma:rxe0?speed=1"}) {
    const auto refused = device_factory(bad);
    EXPECT_TRUE(absl::IsInvalidArgument(refused.status())) << bad;
    EXPECT_TRUE(absl::StrContains(refused.status().message(), bad)) << refused.status();
  }
  EXPECT_TRUE(absl::StrContains(device_factory("rdma:rxe0?speed=1").status().message(), "gid="));
}

TEST(DeviceFactory, AnRdmaDeviceThatIsNotThereIsAnError) {
  const auto progress = *Progress::create();
  NoAcceptor acceptor;
  Progress::Guard guard(*progress);
  const auto absent = (*device_factory("rdma:no-such-hca"))(*progress, acceptor, 0);
  EXPECT_TRUE(absl::IsNotFound(absent.status())) << absent.status();
}

TEST(ExpandRails, PutsTheDevicesOfAKindInThePlaceOfAuto) {
  std::vector<RailDevice> devices(3);
  devices[0].uri = "rdma:a";
  devices[1].name = "b";
  devices[1].reason = "it is broken";
  devices[2].uri = "rdma:c:2";
  const auto list = [&](absl::string_view) -> absl::StatusOr<std::vector<RailDevice>> {
    return devices;
  };
  const auto rails = expand_rails({"tcp:lo", "rdma:auto", "tcp:auto", "rdma:x", "nonsense"}, list);
  ASSERT_TRUE(rails.ok()) << rails.status();
  EXPECT_EQ(*rails, (std::vector<std::string>{"tcp:lo", "rdma:a", "rdma:c:2", "tcp:auto", "rdma:x",
                                              "nonsense"}));
  const auto options = expand_rails({"rdma:auto?gid=1"}, list);
  EXPECT_TRUE(absl::IsInvalidArgument(options.status())) << options.status();
  devices = {devices[1]};
  const auto broken = expand_rails({"rdma:auto"}, list);
  EXPECT_TRUE(absl::IsInvalidArgument(broken.status()));
  EXPECT_TRUE(absl::StrContains(broken.status().message(), "b: it is broken")) << broken.status();
}

TEST(ExpandRails, SaysWhyThereIsNoDevice) {
  const auto none = [](absl::string_view kind) -> absl::StatusOr<std::vector<RailDevice>> {
    return absl::NotFoundError(absl::StrCat("none of ", kind));
  };
  const auto rails = expand_rails({"rdma:auto"}, none);
  EXPECT_TRUE(absl::IsInvalidArgument(rails.status()));
  EXPECT_TRUE(absl::StrContains(rails.status().message(), "rail 'rdma:auto': none of rdma"));
}

// Holds for whatever devices this machine has, if any.
TEST(RailDevices, EachHasANameAndAReason) {
  for (const RailDevice& device : railDevices()) {
    EXPECT_FALSE(device.name.empty());
    EXPECT_FALSE(device.reason.empty()) << device.name;
    EXPECT_TRUE(has_list(device.kind)) << device.kind;
    if (!device.uri.empty()) {
      EXPECT_TRUE(device_factory(device.uri).ok()) << device.uri;
    }
  }
}

#endif

TEST(SwitchRail, HasOptions) {
  const std::string rail = "flare:eth2@10.2.0.254:7100";
  const auto plain = switch_rail(rail);
  ASSERT_TRUE(plain.ok());
  EXPECT_EQ(plain->interface, "eth2");
  EXPECT_EQ(plain->manager.str(), "10.2.0.254:7100");
  EXPECT_FALSE(plain->reproducible);
  EXPECT_EQ(plain->stagger, 1);
  EXPECT_EQ(plain->rail, "");
  EXPECT_EQ(switch_rail(rail + "?rail=blue")->rail, "blue");
  EXPECT_EQ(switch_rail(rail + "?address=10.2.0.7")->address, "10.2.0.7");
  const auto full = switch_rail(rail + "?window=64&streams=2&reproducible=1&stagger=32");
  ASSERT_TRUE(full.ok());
  EXPECT_EQ(full->window, 64);
  EXPECT_EQ(full->streams, 2);
  EXPECT_TRUE(full->reproducible);
  EXPECT_EQ(full->stagger, 32);
  EXPECT_FALSE(switch_rail(rail + "?reproducible=0")->reproducible);
}

TEST(SwitchRail, UnknownOptionsNameTheKnownOnes) {
  const std::string rail = "flare:eth2@10.2.0.254:7100";
  for (const std::string bad :
       {"?speed=1", "?rail=", "?rail=a b", "?window=0", "?streams=17", "?reproducible=2",
        "?address=eth2", "?stagger=0", "?stagger=24", "?stagger=128"}) {
    EXPECT_TRUE(absl::IsInvalidArgument(switch_rail(rail + bad).status())) << bad;
  }
  const std::string why(switch_rail(rail + "?speed=1").status().message());
  for (const std::string known : {"rail=", "window=", "streams=", "reproducible=", "stagger="}) {
    EXPECT_NE(why.find(known), std::string::npos) << why;
  }
}

TEST(DeviceFactory, OpensTheDeviceOnItsInterface) {
  const auto progress = *Progress::create();
  NoAcceptor acceptor;
  Progress::Guard guard(*progress);
  const auto open = [&](const std::string& uri) {
    const auto make = device_factory(uri);
    EXPECT_TRUE(make.ok()) << make.status();
    return (*make)(*progress, acceptor, 3);
  };
  {
    const auto device = open("tcp:lo");
    ASSERT_TRUE(device.ok()) << device.status();
    EXPECT_EQ((*device)->name(), "lo");
    EXPECT_EQ((*device)->rail(), 3);
    EXPECT_EQ((*device)->address().substr(0, 10), "127.0.0.1:");
    EXPECT_TRUE((*device)->carrier());
    const auto named = open("tcp:lo?rail=blue&family=4");
    ASSERT_TRUE(named.ok());
    EXPECT_EQ((*named)->name(), "blue");
    EXPECT_NE((*named)->address(), (*device)->address());
  }
  const auto absent = open("tcp:no-such-if");
  EXPECT_TRUE(absl::IsNotFound(absent.status()));
  EXPECT_NE(absent.status().message().find("lo"), absl::string_view::npos)
      << "it names the existing interfaces";
}

TEST(DeviceFactory, TheAddressCanBeNamed) {
  const auto progress = *Progress::create();
  NoAcceptor acceptor;
  Progress::Guard guard(*progress);
  const auto device = (*device_factory("tcp:lo?address=127.0.0.1"))(*progress, acceptor, 0);
  ASSERT_TRUE(device.ok()) << device.status();
  EXPECT_EQ((*device)->address().substr(0, 10), "127.0.0.1:");
  const auto absent = (*device_factory("tcp:lo?address=10.9.8.7"))(*progress, acceptor, 0);
  for (const char* part : {"10.9.8.7", "'lo'", "127.0.0.1/8"}) {
    EXPECT_TRUE(absl::StrContains(absent.status().message(), part)) << absent.status();
  }
}

TEST(DeviceFactory, ListensInTheRangeOfPorts) {
  const auto progress = *Progress::create();
  NoAcceptor acceptor;
  Progress::Guard guard(*progress);
  const auto probe = (*device_factory("tcp:lo"))(*progress, acceptor, 0);
  ASSERT_TRUE(probe.ok());
  const uint16_t taken = net::Address::parse((*probe)->address())->port();
  const PortRange ports{taken, taken};
  const auto none = (*device_factory("tcp:lo?rail=a", {}, ports))(*progress, acceptor, 1);
  EXPECT_TRUE(absl::IsResourceExhausted(none.status())) << none.status();
  for (const std::string& part :
       {ports.str(), std::string("127.0.0.1 on lo"), std::string("NEZHA_PORTS")}) {
    EXPECT_TRUE(absl::StrContains(none.status().message(), part)) << none.status();
  }
  const PortRange wider{taken, 65535};
  const auto next = (*device_factory("tcp:lo?rail=a", {}, wider))(*progress, acceptor, 1);
  ASSERT_TRUE(next.ok()) << next.status();
  EXPECT_GT(net::Address::parse((*next)->address())->port(), taken);
}

TEST(DeviceFactory, CoresThatAreNotThereAreAnError) {
  const auto progress = *Progress::create();
  NoAcceptor acceptor;
  Progress::Guard guard(*progress);
  const auto device = (*device_factory("tcp:lo?cpus=0,8191"))(*progress, acceptor, 0);
  EXPECT_TRUE(absl::IsInvalidArgument(device.status())) << device.status();
  EXPECT_TRUE(absl::StrContains(device.status().message(), "0,8191")) << device.status();
}

TEST(CoresFor, RailsGetNoneUnlessTheEnvironmentSaysSo) {
  EXPECT_EQ(cores_for({"tcp:a", "tcp:b?cpus=0"}), (std::vector<Cpus>{{}, {}}));
}

class ThreadsOf : public ::testing::Test {
 protected:
  ~ThreadsOf() override { unsetenv("NEZHA_RAIL_THREADS"); }
  std::pair<int, int> given_and_spare(const CoreShare& share) const {
    const RailThreads threads = threads_of({"tcp:a", "tcp:b?cpus=0", "tcp:c"}, share);
    return {threads.given, threads.spare};
  }
};

TEST_F(ThreadsOf, RailsHaveThoseThatThereAreCoresFor) {
  EXPECT_EQ(given_and_spare({1, 8}), std::pair(1, 0)) << "the rail that names cores";
  EXPECT_EQ(given_and_spare({2, 1}), std::pair(1, 1));
  EXPECT_EQ(given_and_spare({64, 1}), std::pair(1, 2));
}

TEST_F(ThreadsOf, TheEnvironmentDecides) {
  setenv("NEZHA_RAIL_THREADS", "1", 1);
  EXPECT_EQ(given_and_spare({1, 8}), std::pair(3, 0));
  setenv("NEZHA_RAIL_THREADS", "0", 1);
  EXPECT_EQ(given_and_spare({64, 1}), std::pair(1, 0));
}

TEST(CoresFor, AreThoseThatNoRailNames) {
  setenv("NEZHA_RAIL_THREADS", "1", 1);
  const Cpus all = allowed_cpus();
  const auto name = [](const Cpus& cpus) { return "tcp:no-such-if?cpus=" + to_string(cpus); };
  const std::vector<Cpus> alone = cores_for({"tcp:no-such-if"});
  EXPECT_EQ(alone, std::vector<Cpus>{all});
  EXPECT_EQ(cores_for({name(all), "tcp:no-such-if"}), (std::vector<Cpus>{{}, all}))
      << "where none is left, they share";
  if (all.size() > 1) {
    const Cpus first{*all.begin()};
    const Cpus others(std::next(all.begin()), all.end());
    EXPECT_EQ(cores_for({"tcp:no-such-if", name(first)}), (std::vector<Cpus>{others, {}}));
  }
  unsetenv("NEZHA_RAIL_THREADS");
}

}  // namespace
}  // namespace nezha
