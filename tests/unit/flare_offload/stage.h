// SPDX-License-Identifier: Apache-2.0
// What tests of hosts and managers share: a Progress that the test drives by a clock of its own,
// and a manager or a switch whose part the test plays. Sockets are real ones on loopback.
#pragma once

#include <sched.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/strings/string_view.h"
#include "flare_offload/secure/secure_connection.h"
#include "flare_offload/wire/messages.h"
#include "gtest/gtest.h"
#include "tests/unit/transport/virtual_clock.h"
#include "transport/progress.h"

namespace nezha::flare {

inline Secret test_secret(unsigned char byte = 7) {
  Secret secret{};
  secret.fill(byte);
  return secret;
}

// Whether a text, such as an error's, contains the words.
inline ::testing::AssertionResult says(absl::string_view text, absl::string_view words) {
  if (text.find(words) != absl::string_view::npos) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << "'" << text << "' does not contain '" << words << "'";
}

inline Address some_port() { return *Address::parse_host("127.0.0.1"); }

// The test's thread holds the lock as long as this exists. Time passes for that thread alone, and
// only when the test says so.
class Stage {
 public:
  Stage() : progress_(*Progress::create()), guard_(*progress_) {}

  Progress& progress() { return *progress_; }
  // Each round calls `work`, too.
  void also(std::function<void()> work) { others_.push_back(std::move(work)); }

  // Handles what is there, and the timers that are due.
  void round() {
    for (const auto& work : others_) work();
    Waiter never;
    progress_->wait(guard_, never, now() + 100);
    sched_yield();
  }
  // Goes on until `is_done`, and lets that much time pass in each round. False: it is not done
  // after a minute of real time.
  [[nodiscard]] bool until(absl::FunctionRef<bool()> is_done, Nanos per_round = 0) {
    using Clock = std::chrono::system_clock;
    for (const auto end = Clock::now() + std::chrono::minutes(1); !is_done(); pass(per_round)) {
      if (Clock::now() > end) return false;
    }
    return true;
  }
  // Lets time pass at once.
  void pass(Nanos time) {
    clock_.advance(time);
    round();
  }

 private:
  std::unique_ptr<Progress> progress_;
  Progress::Guard guard_;
  nezha::testing::VirtualClock clock_;
  std::vector<std::function<void()>> others_;
};

// A manager or a switch: it takes connections, keeps what comes by them, and sends what the test
// tells it to send.
class FakeService final : EventHandler {
 public:
  struct Peer {
    std::unique_ptr<SecureConnection> connection;  // null: it is closed
    Address from;
    bool is_proven = false;
    void send(const message::Message& what) const { connection->send(message::encode(what)); }
  };

  FakeService(Stage& stage, SecureStream::Service kind, const Secret& secret = test_secret(),
              const Address& address = some_port())
      : stage_(stage), kind_(kind), secret_(secret), listener_(*listen_at(address)) {
    address_ = *net::local_address(listener_.fd());
    EXPECT_TRUE(stage_.progress().add(listener_.fd(), this, EPOLLIN).ok());
  }
  ~FakeService() override { stage_.progress().remove(listener_.fd()); }
  FakeService(const FakeService&) = delete;
  FakeService& operator=(const FakeService&) = delete;

  const Address& address() const { return address_; }
  std::function<void(Peer&)> on_proven = [](Peer&) {};
  std::function<void(Peer&, const message::Message&)> on_message = [](Peer&, const auto&) {};

  // All messages of that kind that have come, in order.
  template <typename Kind>
  std::vector<Kind> got() const {
    std::vector<Kind> some;
    for (const message::Message& message : messages_) {
      if (const auto* found = std::get_if<Kind>(&message)) some.push_back(*found);
    }
    return some;
  }
  template <typename Kind>
  size_t count() const {
    return got<Kind>().size();
  }
  size_t connections() const { return peers_.size(); }  // that have come, so far
  // The connection that came last.
  Peer& peer() { return *peers_.back(); }
  void hang_up() {
    for (const auto& peer : peers_) peer->connection.reset();
  }

 private:
  void on_events(uint32_t /*epoll_events*/) override {
    Address from;
    socklen_t length = sizeof from.storage;
    net::Socket socket(
        accept4(listener_.fd(), from.sockaddr_ptr(), &length, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (socket.fd() < 0) return;
    Peer* const peer = peers_.emplace_back(std::make_unique<Peer>()).get();
    peer->from = from;
    peer->connection = std::make_unique<SecureConnection>(
        stage_.progress(), std::move(socket), kind_, secret_,
        SecureConnection::Callbacks{
            .on_ready =
                [this, peer] {
                  peer->is_proven = true;
                  on_proven(*peer);
                },
            .on_message =
                [this, peer](const std::string& text) {
                  messages_.push_back(*message::parse(text));
                  on_message(*peer, message::Message(messages_.back()));
                },
            .on_closed = [peer](const absl::Status&) { peer->connection.reset(); }});
  }

  Stage& stage_;
  const SecureStream::Service kind_;
  const Secret secret_;
  net::Socket listener_;
  Address address_;
  std::vector<std::unique_ptr<Peer>> peers_;
  std::vector<message::Message> messages_;
};

}  // namespace nezha::flare
