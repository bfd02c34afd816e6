// SPDX-License-Identifier: Apache-2.0
// How fast a rail is between two ranks: short exchanges, and a burst in each direction.
#pragma once

#include "check/connection.h"
#include "check/measurement.h"
#include "check/stream.h"

namespace nezha::check {

// What the peer does for the rank that measures, until that closes the connection or the deadline.
void echo(Stream& stream, Nanos deadline);
void take(Stream& stream, Nanos deadline);
void give(Stream& stream, Nanos deadline);

// Sets the round trip and the rates of the path, or its error. Takes at most kMostSpeedTime, and on
// a rail that works about 0.3 s.
void measure_speed(const Target& target, Path& path);
constexpr Nanos kMostSpeedTime = 5 * kSecond;

}  // namespace nezha::check
