// SPDX-License-Identifier: Apache-2.0
// What a manager refuses or ignores.
#include <sys/socket.h>

#include <string>
#include <vector>

#include "flare_offload/manager/manager.h"
#include "flare_offload/secure/refusal_limit.h"
#include "gtest/gtest.h"
#include "tests/unit/flare_offload/manager/managed_fabric.h"
#include "tests/unit/transport/log_lines.h"

namespace nezha::flare {
namespace {

class ManagerLimitsTest : public ManagedFabric {};

TEST_F(ManagerLimitsTest, IgnoresWhatMakesNoSense) {
  ASSERT_NO_FATAL_FAILURE(start(1, kTwoHosts));
  const Hosts hosts = ask(job(1), kTwo);
  ASSERT_TRUE(all_granted(hosts));
  const message::Granted granted = hosts[0]->granted[0];
  const std::string before = manager_->statistics();
  hosts[0]->connection.send("rubbish");
  hosts[0]->send(message::Installed{granted.session});
  hosts[0]->send(renewal(granted, 4095, 4096));
  hosts[0]->send(message::Leave{job(1), 4095});
  hosts[0]->send(message::Leave{job(2), 0});
  ASSERT_NO_FATAL_FAILURE(handle_all_of(*hosts[0]));
  const FakeService::Peer& manager = at(0).service.peer();
  manager.connection->send("rubbish");
  manager.send(message::Leave{job(1), 0});
  manager.send(message::Installed{granted.session + 7});
  manager.send(message::Refused{granted.session, "too late"});
  manager.send(message::Expired{{granted.session + 7}});
  EXPECT_TRUE(all_granted(ask(job(2), kTwo)));  // which the switch answers after all that
  EXPECT_TRUE(says(manager_->statistics(), before.substr(0, before.size() - 2)));
  EXPECT_EQ(at(0).service.count<message::Remove>(), 0U);
  EXPECT_TRUE(hosts[0]->lost.empty() && hosts[0]->rejected.empty());
}

TEST_F(ManagerLimitsTest, RefusesMoreJobsThanItCanKeep) {
  ASSERT_NO_FATAL_FAILURE(start(1, kTwoHosts));
  ManagedHost host(stage_, address_);
  constexpr uint64_t kMost = 4096;
  for (uint64_t i = 0; i < kMost; ++i) host.send(join_of(job(i), 0, kTwo));
  ASSERT_NO_FATAL_FAILURE(handle_all_of(host));
  EXPECT_TRUE(host.rejected.empty());
  host.send(join_of(job(kMost), 0, kTwo));
  ASSERT_TRUE(stage_.until([&] { return !host.rejected.empty(); }));
  EXPECT_EQ(host.rejected[0], "the manager has too many jobs");
  const auto other = ask_as(1, job(7));
  EXPECT_TRUE(stage_.until([&] { return !other->granted.empty(); })) << "a job that it has";
}

TEST_F(ManagerLimitsTest, TheOldestPeerThatHasNotShownTheSecretMakesWay) {
  ASSERT_NO_FATAL_FAILURE(start(1, kTwoHosts));
  ManagedHost proven(stage_, address_);
  ASSERT_NO_FATAL_FAILURE(handle_all_of(proven));
  std::vector<net::Socket> silent;
  for (int i = 0; i < 257; ++i) {
    silent.emplace_back(socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    connect(silent.back().fd(), address_.sockaddr_ptr(), address_.length());
  }
  const auto is_closed = [&](size_t i) {
    char byte = 0;
    return recv(silent[i].fd(), &byte, 1, 0) == 0;
  };
  ASSERT_TRUE(stage_.until([&] { return is_closed(0); }));
  for (int i = 0; i < 100; ++i) stage_.round();
  for (const size_t other : {1, 256}) EXPECT_FALSE(is_closed(other)) << other;
  EXPECT_FALSE(proven.is_closed);
  EXPECT_TRUE(all_granted(ask(job(1), kTwo)));
}

TEST_F(ManagerLimitsTest, HostsWithAnotherSecretAreRefusedAndToldOfOnceAMinute) {
  ASSERT_NO_FATAL_FAILURE(start(1, kTwoHosts));
  nezha::testing::LogLines lines;
  const auto refuse_one = [&] {
    ManagedHost host(stage_, address_, test_secret(8));
    host.send(join_of(job(1), 0, kTwo));
    ASSERT_TRUE(stage_.until([&] { return host.is_closed; }));
    for (int i = 0; i < 100; ++i) stage_.round();
  };
  ASSERT_NO_FATAL_FAILURE(refuse_one());
  EXPECT_EQ(lines.take("the connection from 127.0.0.1:").size(), 1U);
  ASSERT_NO_FATAL_FAILURE(refuse_one());
  EXPECT_TRUE(lines.take("the connection from").empty());
  stage_.pass(RefusalLimit::kPeriod);
  ASSERT_NO_FATAL_FAILURE(refuse_one());
  EXPECT_EQ(lines.take("(1 more were refused since the line before)").size(), 1U);
  EXPECT_TRUE(says(manager_->statistics(), R"("jobs": []})"));
}

}  // namespace
}  // namespace nezha::flare
