// SPDX-License-Identifier: Apache-2.0
// The owner of one end of an RDMA connection, for tests.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <string>
#include <vector>

#include "transport/device.h"
#include "transport/link.h"

namespace nezha::testing {

// One end, and what its link reports.
struct RdmaEnd final : LinkOwner {
  absl::StatusOr<std::byte*> on_segment(Link&, const wire::FrameHeader& frame,
                                        const wire::DataHeader& data) override {
    if (refuses) return absl::InvalidArgumentError("no");
    auto& place = arrived.emplace_back(frame.length);
    return std::find(nowhere.begin(), nowhere.end(), data.number) == nowhere.end() ? place.data()
                                                                                   : nullptr;
  }
  void on_landed(Link&, bool /*is_digested*/) override {
    ++landed;
    if (acknowledges) link->flush_ack();
  }
  void on_written(Link&, OutSegment& segment) override { segment.written = true; }
  void on_acked(Link&, OutSegment& segment) override { acked.push_back(&segment); }
  void on_frame(Link&, const wire::FrameHeader& frame, absl::Span<const std::byte> body) override {
    if (frame.type == wire::FrameType::kPing) ++pings;
    if (frame.type == wire::FrameType::kPing || frame.type == wire::FrameType::kData) return;
    if (frame.type == wire::FrameType::kAck) return;
    bodies.emplace_back(reinterpret_cast<const char*>(body.data()), body.size());
  }
  void on_failed(Link&, const absl::Status& why) override {
    ++failures;
    failure = why;
  }
  uint64_t credit() const override { return 7; }

  std::unique_ptr<Link> link;
  RailCounters counters;
  bool acknowledges = true;
  bool refuses = false;
  std::vector<uint64_t> nowhere;  // numbers of messages
  std::list<std::vector<std::byte>> arrived;
  size_t landed = 0;
  std::vector<OutSegment*> acked;
  std::vector<std::string> bodies;
  int pings = 0;
  int failures = 0;
  absl::Status failure;
};

}  // namespace nezha::testing
