// SPDX-License-Identifier: Apache-2.0
// The two ends of a rail over in-memory RDMA: what happens when their device disappears and
// returns, and what a child of fork() does with an end that it inherits.
#ifdef NEZHA_HAS_RDMA
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "gtest/gtest.h"
#include "tests/unit/transport/rdma_sides.h"
#include "transport/held_memory.h"

namespace nezha::rdma {
namespace {

using testing::FakeFabric;
using testing::Side;

class RdmaDeviceTest : public testing::RdmaSides {};

TEST_F(RdmaDeviceTest, BothEndsSayThatTheyAreOnDifferentNetworks) {
  far_.device.reset();
  fabric_.link_layer = IBV_LINK_LAYER_INFINIBAND;
  open(far_);
  const absl::Status refused = connect();
  const std::string advice = ": name devices of one network for the rail";
  EXPECT_EQ(refused.message(),
            "fake0 is on Ethernet, by RoCE, and the peer's device on InfiniBand" + advice);
  const auto told = log_.take("closed");
  ASSERT_EQ(told.size(), 1u);
  EXPECT_TRUE(absl::StrContains(
      told[0], "fake0 is on InfiniBand, and the peer's device on Ethernet, by RoCE" + advice))
      << told[0];
  EXPECT_EQ(fabric_.pairs(), 0u);
}

// ---- Loss and return ---------------------------------------------------------------------------

struct Loss {
  ibv_event_type event;
  std::string why;  // the reason that a user reads
};

class RdmaDeviceLossTest : public RdmaDeviceTest, public ::testing::WithParamInterface<Loss> {};

TEST_P(RdmaDeviceLossTest, ADeviceThatGoesIsLetGoAndUsedAgainOnceItIsBack) {
  ASSERT_EQ(connect(), absl::OkStatus());
  expect_carries();
  fabric_.take_away(GetParam().event);
  EXPECT_TRUE(until([&] { return near_.is_down() && far_.is_down(); }));
  EXPECT_TRUE(until([&] { return near_.end->failures > 0 && far_.end->failures > 0; }));
  for (Side* side : {&near_, &far_}) {
    using Told = std::vector<std::pair<bool, std::string>>;
    const Told expected{{false, GetParam().why}};
    EXPECT_EQ(side->carrier, expected);
    EXPECT_FALSE(side->device->carrier());
    EXPECT_TRUE(absl::IsAborted(side->end->failure)) << side->end->failure;
    EXPECT_TRUE(absl::StrContains(side->end->failure.message(), "the device fake0"))
        << side->end->failure;
    EXPECT_EQ(side->end->failures, 1);
    side->end.reset();
  }
  EXPECT_TRUE(until([&] { return fabric_.contexts() == 0; }))
      << "the command that takes it away waits for that";

  size_t lines = 0;
  const auto count = [&] { return lines += log_.take("cannot be used").size(); };
  EXPECT_TRUE(until_later([&] { return count() == 2; }));
  await_looks(10);
  EXPECT_EQ(count(), 2u) << "each of the two says so once";
  const absl::Status refused = connect();
  EXPECT_TRUE(absl::IsAborted(refused)) << refused;
  EXPECT_EQ(refused.message(), "the device is gone");

  fabric_.bring_back();
  EXPECT_TRUE(until_later([&] { return near_.is_up() && far_.is_up(); }));
  EXPECT_TRUE(near_.device->carrier() && far_.device->carrier());
  ASSERT_EQ(connect(), absl::OkStatus());
  expect_carries();
}

INSTANTIATE_TEST_SUITE_P(
    Events, RdmaDeviceLossTest,
    ::testing::Values(Loss{IBV_EVENT_PORT_ERR, "the device fake0 is gone"},
                      Loss{IBV_EVENT_DEVICE_FATAL, "the device fake0 has failed"}),
    [](const auto& it) { return it.param.event == IBV_EVENT_PORT_ERR ? "Port" : "Device"; });

TEST_F(RdmaDeviceTest, APortThatIsDownStaysOpenAndCarriesAgainOnceItIsUp) {
  ASSERT_EQ(connect(), absl::OkStatus());
  fabric_.port_state = IBV_PORT_DOWN;
  fabric_.tell(IBV_EVENT_PORT_ERR);
  EXPECT_TRUE(until([&] { return near_.is_down() && far_.is_down(); }));
  EXPECT_EQ(near_.carrier.back().second, "port 1 of fake0 is down");
  EXPECT_TRUE(until([&] { return fabric_.contexts() == 2; }));
  EXPECT_EQ(near_.end->failures, 0) << "the channel decides about its links";
  fabric_.port_state = IBV_PORT_ACTIVE;
  EXPECT_TRUE(until_later([&] { return near_.is_up() && far_.is_up(); }))
      << "also without an event";
  expect_carries();
}

// Queue pairs use the address that the port had before.
TEST_F(RdmaDeviceTest, ADeviceWhoseAddressMovesIsOpenedAnew) {
  ASSERT_EQ(connect(), absl::OkStatus());
  fabric_.gid.gid_index = 3;
  fabric_.tell(IBV_EVENT_GID_CHANGE);
  EXPECT_TRUE(until([&] { return near_.is_up() && far_.is_up(); }));
  EXPECT_EQ(near_.carrier.front().second, "the port has another address");
  EXPECT_TRUE(until([&] { return fabric_.contexts() == 4; }))
      << "links that the channel has not given up use the old contexts";
  near_.end.reset();
  far_.end.reset();
  EXPECT_TRUE(until([&] { return fabric_.contexts() == 2; }));
  ASSERT_EQ(connect(), absl::OkStatus());
  expect_carries();
}

TEST_F(RdmaDeviceTest, ALookAtTheDeviceThatTakesLongHoldsNobodyUp) {
  ASSERT_EQ(connect(), absl::OkStatus());
  std::promise<void> end;
  std::atomic<bool> is_late = false;
  fabric_.on_look = [&is_late, ended = end.get_future().share()] {
    if (ended.wait_for(std::chrono::seconds(100)) != std::future_status::ready) is_late = true;
  };
  const int looks = fabric_.looks;
  fabric_.tell(IBV_EVENT_GID_CHANGE);
  EXPECT_TRUE(until([&] { return fabric_.looks >= looks + 2; }));
  expect_carries();
  end.set_value();
  EXPECT_FALSE(is_late) << "the look delayed everything else";
  EXPECT_TRUE(near_.device->carrier() && far_.device->carrier());
}

// ---- Children of fork() ------------------------------------------------------------------------

// The parent's memory stays registered and its queue pairs still work. Nothing that the child does
// reaches the device; otherwise the fabric would end the child.
TEST_F(RdmaDeviceTest, AChildOfForkLeavesWhatItInheritsAlone) {
  ASSERT_EQ(connect(), absl::OkStatus());
  const std::vector<std::byte> content(100'000, std::byte{7});
  Hold hold(content.data(), content.size());
  OutSegment segment = segment_of(content);
  near_.end->link->submit(segment);
  const size_t regions = fabric_.regions();
  const std::vector<int> descriptors = fabric_.descriptors();
  ASSERT_FALSE(descriptors.empty());
  const pid_t child = fork();
  if (child == 0) {
    hold.release();
    HeldMemory::of_process().release(content);
    const bool is_any_open = std::any_of(descriptors.begin(), descriptors.end(),
                                         [](int fd) { return fcntl(fd, F_GETFD) >= 0; });
    _exit(is_any_open ? 1 : 0);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status)) << status;
  EXPECT_NE(WEXITSTATUS(status), FakeFabric::kTouched) << "it has used its parent's device";
  EXPECT_EQ(WEXITSTATUS(status), 0) << "a descriptor of the device is open in it";
  EXPECT_EQ(fabric_.regions(), regions);
  EXPECT_TRUE(until([&] { return !near_.end->acked.empty(); }));
  EXPECT_TRUE(far_.end->arrived.front() == content);
}

}  // namespace
}  // namespace nezha::rdma
#endif
