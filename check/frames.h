// SPDX-License-Identifier: Apache-2.0
// Finds out how large the packets are that get through on a rail, in each direction.
//
// A frame here is one segment of TCP, as large as fits into a packet. TCP is what nezha's rails use
// and what their firewalls let through, and it sends segments that may not be cut into fragments. A
// segment that never arrives is one that the path loses: handshakes and other small packets got
// through before it.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "check/connection.h"
#include "check/stream.h"

namespace nezha::check {

// Sends one segment of the size that the connection has, and waits until the peer confirms it.
// Returns the size of its IP packet, bytes.
absl::StatusOr<int> send_frame(Stream& stream, Nanos deadline);
// Does what the other end of send_frame() does.
absl::Status take_frame(Stream& stream, Nanos deadline);
// Sends a frame to a peer that asks for one, and also tells how large it was.
absl::Status give_frame(Stream& stream, Nanos deadline);

// The packets that get through in one direction.
struct FrameSize {
  int largest = 0;     // the IP packet that got through, bytes; 0: the size is not known
  bool loses = false;  // true if packets of the kernel's own size are lost, but not smaller ones
  std::string error;   // why nothing is known of the size; empty: it is known
};
struct FrameSizes {
  FrameSize there;
  FrameSize back;
};

// `mtu` is the smaller one of the two ends' MTUs. Takes a few round trips if nothing is lost, and
// else up to kMostFrameTime.
FrameSizes measure_frames(const Target& target, int mtu);
constexpr Nanos kMostFrameTime = 4 * kSecond;

}  // namespace nezha::check
