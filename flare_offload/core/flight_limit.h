// SPDX-License-Identifier: Apache-2.0
// How many blocks a host has in flight: as many as a path takes in a certain time.
//
// Fewer than a round trip's leave the path idle, and with hosts that wait for each other so does
// one host's pause for longer than what is in flight lasts. More only lie in a queue, and what
// finds it full is lost. So the number is what makes a round trip last kGoal, if the session's
// slots suffice for that: each result adds a part that falls with its round trip, and takes one
// away beyond the goal. Queues that are shorter than the goal lose blocks instead, of which each
// takes some away: with more than a sixth of them lost the number falls. It moves by its own
// fraction in a round trip, whatever the rate.
#pragma once

#include <algorithm>
#include <cstdint>

#include "common/clock.h"

namespace nezha::flare {

class FlightLimit {
 public:
  // Well below the time that common queues hold (10 ms and more), several times the pauses that
  // processes make.
  static constexpr Nanos kGoal = 4 * kMillisecond;
  static constexpr double kLeast = 8;
  static constexpr double kFirst = 64;  // some 90 KB: two round trips' at 1 Gbit/s

  // `most`: the window.
  explicit FlightLimit(uint32_t most)
      : most_(most), least_(std::min(kLeast, most_)), blocks_(std::min(kFirst, most_)) {}

  uint32_t blocks() const { return static_cast<uint32_t>(blocks_); }

  // Of a block that was sent once, and was not seen to wait for another host. Such as wait for less
  // than a resend tell too long a time; it passes.
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
