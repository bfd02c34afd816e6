// SPDX-License-Identifier: Apache-2.0
// Detects lost frames at once: the sender numbers its frames, and the receiver sees gaps.
//
// Without numbers a receiver cannot tell which frames are lost (results of later blocks may come
// before those of earlier ones), and even the shortest timeout costs a window's time. A gap is only
// a hint: reordered frames make one, too, and the other end treats what is then sent again as a
// duplicate. Nobody sees a gap after the last frame, or the loss of a kLost, so timeouts remain.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <optional>
#include <vector>

#include "flare_offload/wire/frame.h"

namespace nezha::flare {

// A sender's log: the blocks of its last frames.
class SentLog {
 public:
  // Makes a log for a window of that many blocks. The log has the last frame of each of them,
  // except in heavy loss.
  explicit SentLog(uint32_t window) : seqs_(size(window)) {}

  static uint32_t size(uint32_t window) {
    return std::min(std::bit_ceil(4 * window), uint32_t{1} << 15);
  }

  uint16_t next() const { return next_; }
  // Logs the next frame, which is of block `seq`, and returns its number.
  uint16_t add(uint32_t seq) {
    seqs_[next_ % seqs_.size()] = seq;
    return next_++;
  }
  // Returns the block of frame `number`, or nothing if that frame is too old. A number that was
  // never sent may give any block.
  std::optional<uint32_t> seq_of(uint16_t number) const {
    const auto age = static_cast<uint16_t>(next_ - number);
    if (age == 0 || age > seqs_.size()) return {};
    return seqs_[number % seqs_.size()];
  }

 private:
  std::vector<uint32_t> seqs_;  // a power of two, so that numbers may wrap
  uint16_t next_ = 0;
};

// The most frames of one gap that are asked for: those of a large window. It bounds how many frames
// one kLost can cause.
constexpr uint16_t kMaxLost = 512;

// A receiver's record of which frames of one sender have not come.
class GapFinder {
 public:
  // Records that a frame has come. Returns the missing numbers before it, or none if it shows no
  // new gap.
  NumberRange on_frame(const FrameHeader& header) {
    const auto ahead = static_cast<uint16_t>(header.number - expected_);
    if (ahead >= uint16_t{1} << 15) return {};  // late, or a duplicate
    expected_ = static_cast<uint16_t>(header.number + (header.is_numbered ? 1 : 0));
    const uint16_t count = std::min(ahead, kMaxLost);
    return {static_cast<uint16_t>(header.number - count), count};
  }

 private:
  uint16_t expected_ = 0;
};

}  // namespace nezha::flare
