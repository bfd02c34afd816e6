// SPDX-License-Identifier: Apache-2.0
// Finding out at once that frames were lost: their sender numbers them, their receiver sees gaps.
//
// Which frames are lost a receiver cannot tell from those that come (a later block's result says
// nothing of an earlier block's), and a timeout of the least length costs a window's time. A gap is
// a hint: frames that overtook others make one too, and what is sent again for that the other end
// takes for a duplicate. Of a gap at the end of all there is to send nobody knows, nor of a lost
// kLost: timeouts remain.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <optional>
#include <vector>

#include "flare_offload/wire/frame.h"

namespace nezha::flare {

// A sender's: of which blocks its last frames were.
class SentLog {
 public:
  // For a window of so many blocks, of each of which the last frame is known but in heavy loss.
  explicit SentLog(uint32_t window) : seqs_(size(window)) {}

  static uint32_t size(uint32_t window) {
    return std::min(std::bit_ceil(4 * window), uint32_t{1} << 15);
  }

  uint16_t next() const { return next_; }
  // The number of the next frame, which is of block `seq`.
  uint16_t add(uint32_t seq) {
    seqs_[next_ % seqs_.size()] = seq;
    return next_++;
  }
  // The block that frame `number` was of; nothing if that was long ago. What was never sent may be
  // taken for any block's.
  std::optional<uint32_t> seq_of(uint16_t number) const {
    const auto age = static_cast<uint16_t>(next_ - number);
    if (age == 0 || age > seqs_.size()) return {};
    return seqs_[number % seqs_.size()];
  }

 private:
  std::vector<uint32_t> seqs_;  // a power of two, so that numbers may wrap
  uint16_t next_ = 0;
};

// The most frames of one gap that are asked for, a large window's; one kLost must not make any
// number of frames.
constexpr uint16_t kMaxLost = 512;

// A receiver's: which of a sender's frames have not come.
class GapFinder {
 public:
  // A frame has come: the numbers before it of the last gap; none if it shows no new one.
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
