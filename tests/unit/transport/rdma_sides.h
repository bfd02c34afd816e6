// SPDX-License-Identifier: Apache-2.0
// The two ends of a rail over in-memory RDMA, for tests.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "tests/unit/transport/fake_fabric.h"
#include "tests/unit/transport/log_lines.h"
#include "tests/unit/transport/rdma_end.h"
#include "tests/unit/transport/virtual_clock.h"
#include "transport/rdma/device.h"

namespace nezha::testing {

// One of the two processes. It accepts every connection, and keeps its link until the test drops
// it.
struct Side final : Acceptor {
  wire::Welcome on_hello(Rail, const wire::Hello& hello) override {
    return {wire::WelcomeCode::kAccepted, wire::kVersion, hello.generation};
  }
  void on_accepted(Rail, const wire::Hello&, std::unique_ptr<Link> link) override {
    take(std::move(link));
  }
  void on_carrier(Rail, bool up, absl::string_view why) override {
    carrier.emplace_back(up, std::string(why));
  }
  void take(std::unique_ptr<Link> made) {
    end = std::make_unique<RdmaEnd>();
    end->link = std::move(made);
    end->link->start(end.get(), 0, 1);
  }
  bool is_up() const { return !carrier.empty() && carrier.back().first; }
  bool is_down() const { return !carrier.empty() && !carrier.back().first; }

  std::unique_ptr<rdma::RdmaDevice> device;
  std::unique_ptr<RdmaEnd> end;
  std::vector<std::pair<bool, std::string>> carrier;  // the calls of on_carrier
};

// This thread drives both sides, with a virtual clock.
class RdmaSides : public ::testing::Test {
 protected:
  RdmaSides() {
    for (Side* side : {&near_, &far_}) open(*side);
  }
  ~RdmaSides() override {
    near_.end.reset();
    far_.end.reset();
  }

  void open(Side& side) {
    auto made = rdma::RdmaDevice::create(*progress_, side, 0,
                                         {.wish = {.device = "fake0", .via = "lo"}, .rail = "r"},
                                         fabric_.verbs());
    EXPECT_TRUE(made.ok()) << made.status();
    side.device = *std::move(made);
  }
  bool until(const std::function<bool()>& is_so) {
    for (int i = 0; i < 100'000 && !is_so(); ++i) drive();
    return is_so();
  }
  void drive() {
    Waiter tick;
    progress_->wait(guard_, tick, now() + kMicrosecond);
    fabric_.run();
  }
  // Advances the virtual clock meanwhile. A thread that uses real time looks for a device that is
  // gone.
  bool until_later(const std::function<bool()>& is_so) {
    return until([&] {
      clock_.advance(10 * kMillisecond);
      return is_so();
    });
  }
  void await_looks(int more) {
    const int looks = fabric_.looks;
    EXPECT_TRUE(until_later([&] { return fabric_.looks >= looks + more; }));
  }

  struct Attempt {
    std::optional<absl::Status> outcome;  // why there is no connection; OK: this side has a link
    std::unique_ptr<Device::Attempt> attempt;
  };
  std::unique_ptr<Attempt> begin(const std::string& address) {
    auto made = std::make_unique<Attempt>();
    wire::Hello hello;
    hello.rail = "r";
    made->attempt = near_.device->connect(
        address, hello, [this, &it = *made](absl::StatusOr<std::unique_ptr<Link>> link, uint32_t) {
          it.outcome = link.status();
          if (link.ok()) near_.take(*std::move(link));
        });
    return made;
  }
  absl::Status end(Attempt& attempt) {
    if (!until([&] { return attempt.outcome.has_value(); })) return absl::UnknownError("not over");
    return *attempt.outcome;
  }
  absl::Status connect() { return end(*begin(far_.device->address())); }
  OutSegment segment_of(const std::vector<std::byte>& content) {
    OutSegment segment;
    segment.data = content.data();
    segment.length = static_cast<uint32_t>(content.size());
    segment.header.info.total = content.size();
    segment.header.number = ++number_;
    return segment;
  }
  // Checks that the link carries a segment from one end to the other.
  void expect_carries() {
    const std::vector<std::byte> content(100'000, std::byte{7});
    OutSegment segment = segment_of(content);
    const size_t before = near_.end->acked.size();
    near_.end->link->submit(segment);
    EXPECT_TRUE(until([&] { return near_.end->acked.size() > before; }));
    EXPECT_TRUE(!far_.end->arrived.empty() && far_.end->arrived.back() == content);
  }

  VirtualClock clock_;
  LogLines log_;
  FakeFabric fabric_;
  std::unique_ptr<Progress> progress_ = *Progress::create();
  Progress::Guard guard_{*progress_};
  Side near_, far_;
  uint64_t number_ = 0;  // of the last message
};

}  // namespace nezha::testing
