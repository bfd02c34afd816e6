// SPDX-License-Identifier: Apache-2.0
// A manager with hosts and switches whose parts the test plays.
#pragma once

#include <sys/socket.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/log.h"
#include "flare_offload/manager/manager.h"
#include "flare_offload/switchd/session_spec.h"
#include "gtest/gtest.h"
#include "tests/unit/flare_offload/stage.h"

namespace nezha::flare {

constexpr Nanos kInEachRound = 10 * kMillisecond;

// A switch, which installs what it is told to install.
struct ManagedSwitch {
  ManagedSwitch(Stage& stage, const Address& at)
      : service(stage, SecureStream::Service::kSwitch, test_secret(), at) {
    service.on_proven = [this](FakeService::Peer& manager) { manager.send(has); };
    service.on_message = [this](FakeService::Peer& manager, const message::Message& what) {
      const auto* install = std::get_if<message::Install>(&what);
      if (install == nullptr) return;
      specs.push_back(*parse_session(install->spec));
      const uint32_t session = specs.back().session;
      if (!refusal.empty()) manager.send(message::Refused{session, refusal});
      if (refusal.empty() && answers) manager.send(message::Installed{session});
    };
  }
  message::Has has;
  std::string refusal;
  bool answers = true;
  std::vector<SessionSpec> specs;
  FakeService service;
};

// A rank's connection.
struct ManagedHost {
  ManagedHost(Stage& stage, const Address& manager, const Secret& secret = test_secret())
      : connection(stage.progress(),
                   net::Socket(socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0)),
                   manager, SecureStream::Service::kManager, secret, "a test",
                   {.on_message = [this](const auto& text) { take(*message::parse(text)); },
                    .on_closed = [this](const absl::Status&) { is_closed = true; }}) {}
  void take(const message::Message& what) {
    if (const auto* it = std::get_if<message::Granted>(&what)) granted.push_back(*it);
    if (const auto* it = std::get_if<message::Rejected>(&what)) rejected.push_back(it->reason);
    if (const auto* it = std::get_if<message::Lost>(&what)) lost.push_back(it->reason);
  }
  void send(const message::Message& what) { connection.send(message::encode(what)); }

  std::vector<message::Granted> granted;
  std::vector<std::string> rejected;
  std::vector<std::string> lost;
  bool is_closed = false;
  SecureConnection connection;
};

inline message::Request job(uint64_t number, uint32_t attempt = 1) {
  return {{9, number}, attempt};
}

class ManagedFabric : public ::testing::Test {
 protected:
  ManagedFabric() {
    log().set_level(spdlog::level::off);  // losses are wanted
    options_.lease = 8 * kSecond;
    options_.patience = 20 * kSecond;
  }

  // Starts a manager of that many switches, each of which has a control address. `lines` are the
  // fabric's hosts and links; switches are called s0, s1, ...
  void start(int switches, const std::string& lines) {
    std::string text;
    manager_.reset();
    switches_.clear();
    for (int i = 0; i < switches; ++i) {
      switches_.push_back(std::make_unique<ManagedSwitch>(stage_, some_port()));
      switches_.back()->has.memory = memory_;
      absl::StrAppend(&text, "switch s", i, " ", data_of(i).str(), " ",
                      switches_.back()->service.address().str(), "\n");
    }
    options_.fabric = *parse_fabric(text + lines);
    start_manager();
  }
  void start_manager() {
    start_manager_alone();
    await_switches();
  }
  // Does not wait for the switches.
  void start_manager_alone() {
    manager_.reset();
    manager_ = std::make_unique<Manager>(stage_.progress(), options_, test_secret());
    do {  // the port is free, unless another process takes it meanwhile
      const net::Socket probe = *listen_at(some_port());
      address_ = *net::local_address(probe.fd());
    } while (!manager_->listen(address_).ok());
  }
  void await_switches() {
    ASSERT_TRUE(stage_.until(
        [&] { return manager_->statistics().find("\"up\": false}") == std::string::npos; },
        kInEachRound));
  }
  static Address data_of(int number) {
    return *Address::parse(absl::StrCat("10.9.0.", number, ":7100"));
  }
  ManagedSwitch& at(int number) { return *switches_[static_cast<size_t>(number)]; }

  // Rank r is at the r-th of these addresses.
  static message::Join join_of(const message::Request& request, int rank,
                               const std::vector<std::string>& addresses) {
    return {.request = request,
            .rank = rank,
            .size = static_cast<int>(addresses.size()),
            .address = *Address::parse(addresses[static_cast<size_t>(rank)] + ":" +
                                       std::to_string(7200 + rank)),
            .payload = 1440,
            .window = 32,
            .streams = 2,
            .multicast = true};
  }
  // All ranks of the job ask.
  std::vector<std::unique_ptr<ManagedHost>> ask(const message::Request& request,
                                                const std::vector<std::string>& addresses) {
    std::vector<std::unique_ptr<ManagedHost>> hosts;
    for (int rank = 0; rank < static_cast<int>(addresses.size()); ++rank) {
      hosts.push_back(std::make_unique<ManagedHost>(stage_, address_));
      hosts.back()->send(join_of(request, rank, addresses));
    }
    return hosts;
  }
  using Hosts = std::vector<std::unique_ptr<ManagedHost>>;
  // A rank of the job of kTwo asks.
  std::unique_ptr<ManagedHost> ask_as(int rank, const message::Request& request) {
    auto host = std::make_unique<ManagedHost>(stage_, address_);
    host->send(join_of(request, rank, kTwo));
    return host;
  }
  bool all_granted(const Hosts& hosts) {
    return stage_.until([&] {
      return std::all_of(hosts.begin(), hosts.end(),
                         [](const auto& h) { return !h->granted.empty(); });
    });
  }
  std::string why_rejected(const Hosts& hosts, Nanos per_round = 0) {
    const bool are = stage_.until(
        [&] {
          return std::all_of(hosts.begin(), hosts.end(),
                             [](const auto& h) { return !h->rejected.empty(); });
        },
        per_round);
    return are ? hosts[0]->rejected[0] : "they are not";
  }
  std::string why_lost(ManagedHost& host, Nanos per_round = 0) {
    return stage_.until([&] { return !host.lost.empty(); }, per_round) ? host.lost[0] : "it is not";
  }
  // Whether the sessions that the host was granted were removed from the switch.
  bool is_removed(int number, const message::Granted& granted) {
    return stage_.until([&] {
      for (const message::Remove& it : at(number).service.got<message::Remove>()) {
        if (it.sessions == std::vector<uint32_t>{granted.session, granted.session + 1}) return true;
      }
      return false;
    });
  }
  // Returns once the manager has handled all that the host has sent, in whose order it answers.
  void handle_all_of(ManagedHost& host) {
    const size_t before = host.lost.size();
    host.send(message::Renew{.request = job(1 << 20), .size = 1, .session = 1, .streams = 1});
    ASSERT_TRUE(stage_.until([&] { return host.lost.size() > before; }));
    EXPECT_EQ(host.lost.back(), "the manager knows of no such session");
    host.lost.pop_back();
  }
  static message::Renew renewal(const message::Granted& granted, int rank, int size) {
    return {.request = granted.request,
            .rank = rank,
            .size = size,
            .session = granted.session,
            .streams = granted.streams,
            .group = granted.group};
  }

  // The hosts of a job, and the lines that link them to one switch.
  static inline const std::vector<std::string> kTwo{"10.9.1.1", "10.9.1.2"};
  static constexpr const char* kTwoHosts = "host 10.9.1.1 s0\nhost 10.9.1.2 s0\n";

  Stage stage_;
  ManagerOptions options_;
  uint64_t memory_ = 1 << 24;  // of each switch
  std::vector<std::unique_ptr<ManagedSwitch>> switches_;
  std::unique_ptr<Manager> manager_;
  Address address_;
};

}  // namespace nezha::flare
