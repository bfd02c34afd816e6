// SPDX-License-Identifier: Apache-2.0
// A ring of two over loopback: rank 0 takes part in an allreduce, and the test plays its neighbour.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include "common/log.h"
#include "gtest/gtest.h"
#include "tests/unit/collectives/hosts/documented_order.h"
#include "tests/unit/collectives/hosts/played_rank.h"
#include "tests/unit/collectives/hosts/world.h"
#include "tests/unit/collectives/reference.h"

namespace nezha {

constexpr double kRingSlow = 100e6;  // bytes per second of each rail
constexpr double kRingFast = 2e9;
// What a rank begins with in an allreduce: the whole segments that its window has room for. Bytes.
constexpr size_t kRingBegun = 4 * kLongSegment;
constexpr size_t kRingPart = 16 << 10;  // bytes; less than may be in flight on the slowest rail

class PlayedRing : public ::testing::Test {
 protected:
  static constexpr size_t kChunk = 2 << 20;  // bytes
  static constexpr Work kWork{.elements = 2 * kChunk / sizeof(float), .tag = 1};

  PlayedRing() {
    log().set_level(spdlog::level::err);  // the tests break links on purpose
    // The neighbour adds nothing to its own chunk, which it sends first, and completes the other.
    const auto own = inputs<float>(1, kWork);
    std::vector<float> contents(own.begin() + kHalf, own.end());
    contents.insert(contents.end(), wanted_.begin(), wanted_.begin() + kHalf);
    neighbour_.set_contents(contents);
  }
  // Both rails are taken to be as fast as that. Returns once the ring has begun what it may.
  void start(double rate) {
    for (const int r : {0, 1}) {
      for (const Rail rail : {0, 1}) {
        world_.rank(r).endpoint->device(rail)->counters().rate = rate;
      }
    }
    ASSERT_TRUE(drive_.connect(0, 1));
    neighbour_.receive(2 * kChunk);
    run_.start();
    ASSERT_TRUE(drive_.until([&] { return begun() == kRingBegun; }));
  }
  // Bytes of the ring's own chunk that have come to the neighbour.
  size_t begun() const { return begun_by(0, 0) + begun_by(1, 0); }
  size_t begun_by(Rail rail, size_t from) const {
    return neighbour_.received_by(rail, from, kChunk);
  }
  // The neighbour sends more of its own chunk, of which the ring has the final sum, or more of
  // what has come around.
  void send_own(size_t length, Rail rail) {
    neighbour_.push(sent_, length, rail);
    sent_ += length;
  }
  void send_back(size_t length, Rail rail) {
    neighbour_.push(kChunk + sent_back_, length, rail);
    sent_back_ += length;
  }
  // The neighbour sends all that is left.
  void finish() {
    send_own(kChunk - sent_, kAnyRail);
    while (sent_back_ < kChunk) {
      ASSERT_TRUE(drive_.until([&] { return begun() > sent_back_; }));
      send_back(begun() - sent_back_, kAnyRail);
    }
    ASSERT_TRUE(
        drive_.until([&] { return run_.waiter.done() && neighbour_.received() == 2 * kChunk; }));
    EXPECT_EQ(run_.task().poll(), Task::State::kDone);
    EXPECT_EQ(reference::first_difference(run_.result(), wanted_), kWork.elements);
    auto contents = inputs<float>(0, kWork);
    std::copy(wanted_.begin() + kHalf, wanted_.end(), contents.begin() + kHalf);
    EXPECT_EQ(reference::first_difference(neighbour_.message<float>(), contents), kWork.elements);
  }
  Channel& channel(int rank) {
    return *world_.rank(rank).group.channels[static_cast<size_t>(1 - rank)];
  }

  static constexpr ptrdiff_t kHalf = kChunk / sizeof(float);  // elements
  World world_{2};
  Drive drive_{world_};
  RankRun<> run_{world_.rank(0), ScheduleKind::kRing, kWork, {kWhole}};
  PlayedRank neighbour_{world_.rank(1), 0, ScheduleKind::kRing, kWork};
  const std::vector<float> wanted_ =
      by_ring<float>(ReduceOperation::kSum, 2, kWork.elements, kWork.tag);
  size_t sent_ = 0, sent_back_ = 0;  // bytes
};

}  // namespace nezha
