// SPDX-License-Identifier: Apache-2.0
// A device on loopback, and plain sockets that connect to it. handshake_test.cc tests what becomes
// of connections that are accepted.
#include "transport/interface_device.h"

#include <sys/socket.h>

#include <cerrno>
#include <chrono>
#include <functional>
#include <future>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "absl/strings/match.h"
#include "gtest/gtest.h"
#include "tests/unit/transport/descriptor_limit.h"
#include "tests/unit/transport/log_lines.h"
#include "tests/unit/transport/stranger.h"
#include "tests/unit/transport/virtual_clock.h"

namespace nezha {
namespace {

using testing::Stranger;

constexpr Rail kRailOnLoopback = 3;
constexpr size_t kMostHandshakes = 1024;

class DeviceWithoutLinks final : public InterfaceDevice {
 public:
  using InterfaceDevice::set_usable;

  static std::unique_ptr<DeviceWithoutLinks> create(Progress& progress, Acceptor& acceptor) {
    std::unique_ptr<DeviceWithoutLinks> device(new DeviceWithoutLinks(progress, acceptor));
    const absl::Status status = device->open();
    EXPECT_TRUE(status.ok()) << status;
    return device;
  }

 private:
  DeviceWithoutLinks(Progress& progress, Acceptor& acceptor)
      : InterfaceDevice(progress, acceptor, kRailOnLoopback,
                        {.interface = "lo", .rail = "blue", .address = {.named = "127.0.0.1"}}) {}
  absl::string_view kind() const override { return "tcp"; }
  absl::StatusOr<std::unique_ptr<LinkEnd>> new_end() override {
    return absl::UnimplementedError("it makes no links");
  }
};

// Answers each hello with a refusal.
struct RefusingAcceptor final : Acceptor {
  using Carrier = std::tuple<Rail, bool, std::string>;

  wire::Welcome on_hello(Rail, const wire::Hello&) override {
    return {.code = wire::WelcomeCode::kDuplicate};
  }
  void on_accepted(Rail, const wire::Hello&, std::unique_ptr<Link>) override {
    ADD_FAILURE() << "no hello was accepted";
  }
  void on_carrier(Rail rail, bool up, absl::string_view why) override {
    carrier.emplace_back(rail, up, std::string(why));
  }

  std::vector<Carrier> carrier;
};

// Returns errno's error; 0: the connection was made.
int error_of_connecting_to(net::Address address) {
  const net::Socket socket(::socket(address.family(), SOCK_STREAM | SOCK_CLOEXEC, 0));
  return connect(socket.fd(), address.sockaddr_ptr(), address.length()) == 0 ? 0 : errno;
}

// The test's thread drives everything, so that events happen only in the functions below that
// drive. The clock is virtual, so no handshake takes too long.
class InterfaceDeviceTest : public ::testing::Test {
 protected:
  bool until(const std::function<bool()>& is_so) {
    for (int i = 0; i < 100'000 && !is_so(); ++i) drive();
    return is_so();
  }
  // Calls, in another thread, what waits for the device.
  template <typename Call>
  auto while_driving(Call call) {
    auto result = std::async(std::launch::async, call);
    while (result.wait_for(std::chrono::seconds(0)) != std::future_status::ready) drive();
    return result.get();
  }
  bool is_closed(Stranger& stranger) {
    return while_driving([&] { return stranger.is_closed(); });
  }
  // Whether the device still answers to a hello.
  bool is_answered(Stranger& stranger) {
    wire::Hello hello;
    hello.rail = device_->name();
    stranger.write(wire::encode(hello));
    const auto welcome = while_driving([&] { return stranger.welcome(); });
    return welcome.ok() && welcome->code == wire::WelcomeCode::kDuplicate;
  }
  // Makes the device accept all earlier connections.
  void accept_all() {
    Stranger last(device_->address());
    EXPECT_TRUE(is_answered(last));
  }
  void drive() {
    Waiter tick;
    progress_->wait(guard_, tick, now() + kMicrosecond);
  }

  testing::VirtualClock clock_;
  testing::LogLines log_;
  std::unique_ptr<Progress> progress_ = *Progress::create();
  Progress::Guard guard_{*progress_};
  RefusingAcceptor acceptor_;
  std::unique_ptr<DeviceWithoutLinks> device_ = DeviceWithoutLinks::create(*progress_, acceptor_);
};

TEST_F(InterfaceDeviceTest, ListensAtItsOwnAddressAlone) {
  const net::Address own = *net::Address::parse(device_->address());
  EXPECT_EQ(own.host(), "127.0.0.1");
  EXPECT_EQ(error_of_connecting_to(own), 0);
  net::Address other = *net::Address::parse_host("127.0.0.2");
  other.set_port(own.port());
  EXPECT_EQ(error_of_connecting_to(other), ECONNREFUSED);
}

TEST_F(InterfaceDeviceTest, AnAddressOfAnotherFamilyCannotBeReached) {
  const std::string peer = "[::1]:5";
  EXPECT_TRUE(device_->can_reach("127.0.0.9:5").ok());
  const absl::Status status = device_->can_reach(peer);
  EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
  for (const std::string& part : {peer, device_->address(), std::string("?family=6")}) {
    EXPECT_TRUE(absl::StrContains(status.message(), part)) << status;
  }
  std::optional<absl::Status> outcome;
  const auto attempt = device_->connect(
      peer, {},
      [&](absl::StatusOr<std::unique_ptr<Link>> link, uint32_t) { outcome = link.status(); });
  ASSERT_TRUE(until([&] { return outcome.has_value(); }));
  EXPECT_EQ(outcome->message(), status.message());
}

TEST_F(InterfaceDeviceTest, TellsOfItsCarrierWhenThatChanges) {
  EXPECT_TRUE(device_->carrier());
  device_->set_usable(true, "it was plugged in");
  EXPECT_TRUE(acceptor_.carrier.empty());
  device_->set_usable(false, "it was unplugged");
  device_->set_usable(false, "it is gone");
  EXPECT_FALSE(device_->carrier());
  device_->set_usable(true, "it is back");
  EXPECT_TRUE(device_->carrier());
  const std::vector<RefusingAcceptor::Carrier> expected{
      {kRailOnLoopback, false, "it was unplugged"}, {kRailOnLoopback, true, "it is back"}};
  EXPECT_EQ(acceptor_.carrier, expected);
}

TEST_F(InterfaceDeviceTest, ConnectionsInTheMakingAreGivenUpOnceItCannotBeUsed) {
  Stranger half(device_->address());
  half.write(wire::encode(wire::Hello{}).data(), wire::kHelloSize / 2);
  accept_all();
  device_->set_usable(false, "it was unplugged");
  EXPECT_TRUE(is_closed(half));
}

TEST_F(InterfaceDeviceTest, IsOutOfReachOnceItIsDestroyed) {
  const net::Address own = *net::Address::parse(device_->address());
  Stranger silent(device_->address());
  accept_all();
  device_.reset();
  EXPECT_TRUE(is_closed(silent));
  EXPECT_EQ(error_of_connecting_to(own), ECONNREFUSED);
}

// Anybody may connect.
TEST_F(InterfaceDeviceTest, ConnectionsInTheMakingAreLimitedInNumber) {
  const DescriptorLimit limit(3 * kMostHandshakes);  // each connection has one at either end
  std::list<Stranger> silent;
  while (silent.size() < kMostHandshakes) {
    silent.emplace_back(device_->address());
    if (silent.size() % 64 == 0) drive();  // connections beyond net.core.somaxconn would wait
  }
  Stranger refused(device_->address());
  EXPECT_TRUE(is_closed(refused));
  EXPECT_TRUE(is_answered(silent.back()));
  Stranger next(device_->address());  // in the place of the one that was answered
  EXPECT_TRUE(is_answered(next));
}

TEST_F(InterfaceDeviceTest, SaysOnceThatItHasNoDescriptorForAConnection) {
  size_t told = 0;
  const auto has_told = [&](size_t times) {
    told += log_.take("blue: accepting a connection failed").size();
    return told == times;
  };
  accept_all();  // a sanitizer opens descriptors of its own the first time
  for (const size_t times : {1u, 2u}) {
    Stranger stranger(device_->address());
    {
      const DescriptorLimit none(next_descriptor());
      EXPECT_TRUE(until([&] { return has_told(times); })) << "again, after a connection";
      for (int attempt = 0; attempt < 3; ++attempt) {
        clock_.advance(kSecond);
        drive();
      }
      EXPECT_TRUE(has_told(times)) << told;
    }
    clock_.advance(kSecond);
    EXPECT_TRUE(is_answered(stranger)) << "it has waited";
  }
}

}  // namespace
}  // namespace nezha
