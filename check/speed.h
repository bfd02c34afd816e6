// SPDX-License-Identifier: Apache-2.0
// Measures how fast a rail is between two ranks: by short exchanges, and a burst in each direction.
#pragma once

#include "check/connection.h"
#include "check/measurement.h"
#include "check/stream.h"

namespace nezha::check {

// These do the peer's parts, until the rank that measures closes the connection or the deadline
// comes.
void echo(Stream& stream, Nanos deadline);
void take(Stream& stream, Nanos deadline);
void give(Stream& stream, Nanos deadline);

// Sets the round trip and the rates of the path, or its error. Takes at most kMostSpeedTime, and on
// a rail that works about 0.3 s.
void measure_speed(const Target& target, Path& path);
constexpr Nanos kMostSpeedTime = 5 * kSecond;

}  // namespace nezha::check
