// SPDX-License-Identifier: Apache-2.0
// The control port of a switch, to which managers connect over loopback. The test moves the clock.
#include "flare_offload/switchd/control.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tests/unit/transport/virtual_clock.h"

namespace nezha::flare {
namespace {

constexpr size_t kSwitchMemory = 1 << 20;
constexpr Nanos kLease = 60 * kSecond;

Secret secret_of_all(unsigned char byte) {
  Secret secret{};
  secret.fill(byte);
  return secret;
}

Address any_port() {
  Address any = *Address::parse("127.0.0.1:1");
  any.set_port(0);
  return any;
}

std::string spec_of_session(uint32_t session, int window = 8) {
  return absl::StrCat("session ", session, "\ngeneration 1\nkey ", std::string(64, '1'),
                      "\nwindow ", window,
                      "\npayload 64\nchild 127.0.0.1:7200 0\nchild 127.0.0.1:7201 1\n");
}

// A manager's connection, and what the switch has told it.
struct ConnectedManager {
  ConnectedManager(const Address& to, const Secret& secret) {
    net::Socket socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    EXPECT_EQ(connect(socket.fd(), to.sockaddr_ptr(), to.length()), 0);
    EXPECT_EQ(fcntl(socket.fd(), F_SETFL, O_NONBLOCK), 0);
    stream = *SecureStream::over(std::move(socket), SecureStream::Role::kClient,
                                 SecureStream::Service::kSwitch, secret, "a test");
  }
  void drive() {
    if (!status.ok()) return;
    status = stream->drive([this](const std::string& text) {
      const message::Message what = *message::parse(text);
      if (const auto* it = std::get_if<message::Has>(&what)) has.push_back(*it);
      if (const auto* it = std::get_if<message::Installed>(&what)) installed.push_back(it->session);
      if (const auto* it = std::get_if<message::Refused>(&what)) refused.push_back(it->reason);
      if (const auto* it = std::get_if<message::Expired>(&what)) expired = it->sessions;
    });
  }

  std::unique_ptr<SecureStream> stream;
  absl::Status status;
  std::vector<message::Has> has;
  std::vector<uint32_t> installed, expired;
  std::vector<std::string> refused;
};

class ControlTest : public ::testing::Test {
 protected:
  ControlTest() {
    std::vector<pollfd> awaited;
    control_->add_to(awaited);
    at_ = *net::local_address(awaited.front().fd);
  }

  std::unique_ptr<ConnectedManager> connected(unsigned char secret = 1) {
    auto manager = std::make_unique<ConnectedManager>(at_, secret_of_all(secret));
    drive(*manager);
    return manager;
  }
  // Lets both ends do what they can. Bytes over loopback need no time.
  void drive(ConnectedManager& manager) {
    for (int round = 0; round < 20; ++round) {
      manager.drive();
      control_->handle();
    }
  }
  void tell(ConnectedManager& manager, const message::Message& what) {
    manager.stream->send(message::encode(what));
    drive(manager);
  }

  testing::VirtualClock clock_;
  std::unique_ptr<Server> server_ = *Server::listen(any_port(), kSwitchMemory, 1);
  std::unique_ptr<Control> control_ = *Control::listen(any_port(), secret_of_all(1), server_.get());
  Address at_;
};

TEST_F(ControlTest, GreetsAManagerWithWhatTheSwitchHas) {
  const auto first = connected();
  ASSERT_EQ(first->has.size(), 1U);
  EXPECT_EQ(first->has[0].memory, kSwitchMemory);
  EXPECT_TRUE(first->has[0].sessions.empty());
  tell(*first, message::Install{2, kLease, spec_of_session(7)});
  EXPECT_EQ(first->installed, std::vector<uint32_t>{7});
  const auto second = connected();
  ASSERT_EQ(second->has.size(), 1U);
  EXPECT_EQ(second->has[0].sessions, (std::vector<uint32_t>{7, 8})) << "a session for each stream";
}

TEST_F(ControlTest, ClosesAConnectionWithAnotherSecret) {
  const auto stranger = connected(2);
  EXPECT_FALSE(stranger->status.ok());
  EXPECT_TRUE(stranger->has.empty());
}

TEST_F(ControlTest, ClosesAConnectionThatShowsNoSecretInTime) {
  net::Socket silent(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  ASSERT_EQ(connect(silent.fd(), at_.sockaddr_ptr(), at_.length()), 0);
  control_->handle();
  const auto connections = [this] {
    std::vector<pollfd> awaited;
    control_->add_to(awaited);
    return awaited.size() - 1;  // without the one that listens
  };
  EXPECT_EQ(connections(), 1U);
  EXPECT_LE(control_->next_due(), now() + 5 * kSecond);
  clock_.advance(6 * kSecond);
  control_->handle();
  EXPECT_EQ(connections(), 0U);
}

TEST_F(ControlTest, InstallsAllStreamsOrNone) {
  const auto manager = connected();
  tell(*manager, message::Install{1, kLease, spec_of_session(8)});
  tell(*manager, message::Install{2, kLease, spec_of_session(7)});
  ASSERT_EQ(manager->refused.size(), 1U);
  EXPECT_NE(manager->refused[0].find('8'), std::string::npos) << manager->refused[0];
  EXPECT_EQ(connected()->has.at(0).sessions, std::vector<uint32_t>{8});
}

TEST_F(ControlTest, RefusesWhatMemoryDoesNotHold) {
  const auto manager = connected();
  tell(*manager, message::Install{1, kLease, spec_of_session(7, 1 << 16)});
  EXPECT_EQ(manager->refused.size(), 1U);
  EXPECT_TRUE(manager->installed.empty());
}

TEST_F(ControlTest, ASessionEndsWithItsLease) {
  const auto manager = connected();
  tell(*manager, message::Install{1, kLease, spec_of_session(7)});
  tell(*manager, message::Install{1, kLease, spec_of_session(9)});
  clock_.advance(kLease / 2);
  tell(*manager, message::Extend{kLease, {9}});
  clock_.advance(kLease / 2 + kSecond);
  drive(*manager);
  EXPECT_EQ(manager->expired, std::vector<uint32_t>{7});
  EXPECT_EQ(connected()->has.at(0).sessions, std::vector<uint32_t>{9});
}

TEST_F(ControlTest, RemovesWhatAManagerNames) {
  const auto manager = connected();
  tell(*manager, message::Install{1, kLease, spec_of_session(7)});
  tell(*manager, message::Remove{{7, 1234}});
  EXPECT_TRUE(connected()->has.at(0).sessions.empty());
}

}  // namespace
}  // namespace nezha::flare
