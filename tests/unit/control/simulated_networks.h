// SPDX-License-Identifier: Apache-2.0
// The networks that the policies' tests run over.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "bench/programs/lane_simulator.h"

namespace nezha {

constexpr uint64_t kKiB = 1 << 10;
constexpr uint64_t kMiB = 1 << 20;

// GLEX and SHARP as table I of the Nezha paper has them on 4 nodes: 1 KiB, 8 MiB and 64 MiB take
// 82 us, 14.8 ms and 158 ms, and 9 us, 22.1 ms and 181 ms; together they lose 20% and 6%, and at
// 1 KiB tens of microseconds.
inline const SimulatedLane kGlex{
    .start = 80'000, .slope = 2.0, .start_beside = 50'000, .slope_beside = 0.2};
inline const SimulatedLane kSharp{
    .start = 6'300, .slope = 2.68, .start_beside = 90'000, .slope_beside = 0.06};
inline const SimulatedLane kTcp{.start = 300'000, .slope = 6, .slope_beside = 0.07};

struct Network {
  std::string name;
  std::vector<SimulatedLane> lanes;
};
inline std::vector<Network> networks() {
  SimulatedLane bursty = megabits(1000);
  bursty.burst = 32 << 10;
  bursty.burst_slope = 1;
  SimulatedLane crowded = megabits(1000);
  crowded.slope_beside = 0.15;
  crowded.start_beside = 20'000;
  return {{"1000+1000", {megabits(1000), megabits(1000)}},
          {"1000+400", {megabits(1000), megabits(400)}},
          {"bursty", {bursty, megabits(1000)}},
          {"1000+400+200", {megabits(1000), megabits(400), megabits(200)}},
          {"crowded", {crowded, crowded, crowded}},
          {"1000+400+200+100", {megabits(1000), megabits(400), megabits(200), megabits(100)}},
          {"GLEX+SHARP", {kGlex, kSharp}},
          {"TCP+SHARP", {kTcp, kSharp}},
          {"TCP+GLEX+SHARP", {kTcp, kGlex, kSharp}},
          {"TCP+TCP+GLEX+SHARP", {kTcp, kTcp, kGlex, kSharp}}};
}

}  // namespace nezha
