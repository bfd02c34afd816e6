// SPDX-License-Identifier: Apache-2.0
// A link that stores the submitted segments; the test decides what happens to them.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <vector>

#include "transport/link.h"

namespace nezha::testing {

class RecordingLink : public Link {
 public:
  void start(LinkOwner*, Rail, uint64_t) override {}
  void submit(OutSegment& segment) override { unacked_segments.push_back(&segment); }
  void withdraw(OutSegment& segment) override {
    withdrawn.push_back(&segment);
    on_withdraw(segment);
  }
  void send(wire::FrameType, absl::string_view) override {}
  void flush_ack() override {}
  void answer() override {}
  bool drop_incoming(size_t) override { return true; }
  const RecycledDeque<OutSegment*>& unacked() const override { return unacked_segments; }
  Health health() const override { return state; }
  uint64_t undelivered() const override { return bytes_undelivered; }
  void shut_down() override {}

  RecycledDeque<OutSegment*> unacked_segments;
  std::vector<const OutSegment*> withdrawn;
  std::function<void(const OutSegment&)> on_withdraw = [](const OutSegment&) {};
  Health state;
  uint64_t bytes_undelivered = std::numeric_limits<uint64_t>::max();
};

}  // namespace nezha::testing
