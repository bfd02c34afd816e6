// SPDX-License-Identifier: Apache-2.0
// Limits how many blocks a host keeps in flight: as many as the path carries in a certain time.
//
// With fewer blocks than a round trip takes, the path is idle at times. Hosts wait for each other,
// so it is also idle when one host pauses for longer than the blocks in flight last. More blocks
// only lie in a queue, and are lost when it is full. So the limit aims at a round trip of kGoal, as
// far as the session's slots allow. Each result raises the limit, the less the longer its round
// trip is, and lowers it beyond the goal. Where queues are shorter than the goal blocks are lost
// instead, and each lost block lowers the limit: it falls if more than a sixth of the blocks are
// lost. In a round trip the limit moves by a fraction of itself, whatever the rate.
#pragma once

#include <algorithm>
#include <cstdint>

#include "common/clock.h"

namespace nezha::flare {

class FlightLimit {
 public:
  // The goal is well below the time that common queues hold (10 ms and more), and several times as
  // long as the pauses of processes.
  static constexpr Nanos kGoal = 4 * kMillisecond;
  static constexpr double kLeast = 8;
  static constexpr double kFirst = 64;  // about 90 KB: two round trips at 1 Gbit/s

  // `most` is the window, in blocks.
  explicit FlightLimit(uint32_t most)
      : most_(most), least_(std::min(kLeast, most_)), blocks_(std::min(kFirst, most_)) {}

  uint32_t blocks() const { return static_cast<uint32_t>(blocks_); }

  // Adjusts the limit to the round trip of a block that was sent once and was not seen to wait for
  // another host. A block that waits for less time than a resend takes is not seen to wait, and
  // reports too long a round trip; the effect passes.
  void on_round_trip(Nanos round_trip) {
    const auto spare = static_cast<double>(kGoal - round_trip) / kGoal;
    change(kGain * std::clamp(spare, -0.5, 1.0));
  }
  void on_lost(uint32_t blocks) { change(-kLoss * blocks); }

 private:
  static constexpr double kGain = 0.25;
  static constexpr double kLoss = 1.25;

  void change(double blocks) { blocks_ = std::clamp(blocks_ + blocks, least_, most_); }

  double most_;
  double least_;
  double blocks_;
};

}  // namespace nezha::flare
