// SPDX-License-Identifier: Apache-2.0
// The datagrams between hosts and aggregation switches, and between switches: all of the format is
// in this file.
//
// Version 4. Integers are little-endian and unsigned, and so are the elements' bytes; reserved
// fields are sent as zero and ignored when received. One UDP datagram is one frame:
//
//   offset  bytes
//    0      1      version (upper 4 bits), FrameType (lower 4)
//    1      1      DataType (upper 4 bits), ReduceOperation (lower 4) of the block
//    2      1      child: which of the receiver's children sends this; from a switch, 0
//    3      1      flags: 1: the frame is numbered; 2: it goes down, from a switch to its children;
//                  the others are reserved
//    4      4      session
//    8      2      generation, below
//   10      2      number, below
//   12      4      seq: the block's number in its session; runs on across operations, and wraps
//   16      4      operation id: which collective the block is of
//   20     12      tag (authenticator.h) over bytes 0 to 19 and all that follows the tag
//   32             payload
//
// A receiver drops a frame whose direction flag is wrong: somebody has reflected it, so its tag is
// valid.
//
// The generation tells the session's installations apart, so that frames left over from one cannot
// reach the next. The operation id reveals ranks that disagree on what they do.
//
// A child numbers its contributions, and a switch numbers the results that it sends to all
// children, but not those that it sends to one child again. An unnumbered frame carries the number
// that its sender's next numbered frame will have. So a receiver finds out which frames it lacks
// (core/sent_log.h) and asks for them at once. Numbers are hints: a sender that numbers nothing is
// served as well, with the help of timeouts.
//
// A block is the same range of elements on all ranks, as many as fit a datagram. Frames and
// payloads:
//
//   kContribution  child to switch: the elements; from a switch below, the combination of its own
//                  children's
//   kResult        switch to its children: the reduced elements. A result for all children may be
//                  sent to a multicast group of which the manager has told them
//   kPending       switch to its children: the block waits for the contributions of the ranks in
//                  the payload: up to 64 times {u16 first rank, u16 count}
//   kMismatch      switch to its children and its parent, and on to all other ranks: some ranks
//                  contribute to this block what the header says, and others something else; the
//                  payload is a Mismatch. The block will never be finished
//   kLost          either way: frames with these numbers have not arrived: {u16 first, u16 count}
//
// The payload of a contribution and of a result may be empty (a barrier's is). Sparse blocks, which
// take several frames (shards), will be types of their own.
//
// Nothing read from a socket is used before it passed decode() and Authenticator::verify().
// switchd/ and core/ check what those two cannot know (whether there is such a session, whether the
// block is due).
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "absl/types/span.h"
#include "flare_offload/wire/authenticator.h"
#include "nezha/types.h"

namespace nezha::flare {

// The version is raised with any change to the frames, to the messages (wire/messages.h) or to
// their meaning. Hosts and managers of another version find out when they connect to the manager or
// to a switch (secure_stream.h).
constexpr uint8_t kVersion = 4;
constexpr size_t kHeaderSize = 32;
constexpr size_t kSessionOffset = 4;

// Limits on what a peer may make this process believe.
constexpr int kMaxChildren = 64;      // the most children of one switch in one session
constexpr size_t kMaxPayload = 8936;  // bytes: what payload_for(9000, false) is
constexpr size_t kMaxDatagram = kHeaderSize + kMaxPayload;

// Returns the most bytes of elements that a datagram carries unfragmented over a path of that MTU:
// whole elements of every type, at most kMaxPayload. Returns 0 if there is no room for any.
size_t payload_for(size_t mtu, bool ipv6);

enum class FrameType : uint8_t {
  kContribution = 1,
  kResult = 2,
  kPending = 3,
  kMismatch = 4,
  kLost = 5,
};

// The properties that contributions must agree on to be combined, besides their length.
struct BlockId {
  uint32_t seq = 0;
  uint32_t operation_id = 0;
  DataType type = DataType::kFloat32;
  ReduceOperation operation = ReduceOperation::kSum;  // sum, product, min or max

  friend bool operator==(const BlockId&, const BlockId&) = default;
};

struct FrameHeader {
  FrameType type = FrameType::kContribution;
  uint8_t child = 0;
  bool is_numbered = false;
  bool is_down = false;  // the frame goes from a switch to its children
  uint16_t number = 0;
  uint16_t generation = 0;
  uint32_t session = 0;
  BlockId block = {};

  friend bool operator==(const FrameHeader&, const FrameHeader&) = default;
};

// A frame as it lies in a datagram's memory.
struct Frame {
  FrameHeader header;
  absl::Span<const std::byte> payload;
};

// Writes the datagram to `out`, which has room for kHeaderSize and the payload, at most kMaxPayload
// bytes. Returns its size.
size_t encode(const FrameHeader& header, absl::Span<const std::byte> payload,
              Authenticator& authenticator, std::byte* out);

// Returns nothing if the datagram is no frame of this version or breaks a limit. Does not check the
// tag.
std::optional<Frame> decode(absl::Span<const std::byte> datagram);

// Consecutive ranks.
struct RankRange {
  uint16_t first = 0;
  uint16_t count = 0;

  friend bool operator==(const RankRange&, const RankRange&) = default;
};

// Returns the payload of kPending, for at most kMaxChildren ranges.
std::vector<std::byte> encode_ranges(absl::Span<const RankRange> ranges);
// Takes a payload that decode() passed.
std::vector<RankRange> decode_ranges(absl::Span<const std::byte> payload);

// The payload of kMismatch.
struct Mismatch {
  size_t length = 0;  // bytes of what is contributed to the header's block
  RankRange ranks;    // some who contribute to that
  BlockId other;      // what others contribute to instead; its seq is the header's
  size_t other_length = 0;
  RankRange other_ranks;

  friend bool operator==(const Mismatch&, const Mismatch&) = default;
};
std::vector<std::byte> encode_mismatch(const Mismatch& mismatch);
// Takes a frame that decode() passed.
Mismatch decode_mismatch(const Frame& frame);

// Numbers of frames, consecutive modulo 2^16.
struct NumberRange {
  uint16_t first = 0;
  uint16_t count = 0;

  friend bool operator==(const NumberRange&, const NumberRange&) = default;
};

// Returns the payload of kLost.
std::vector<std::byte> encode_lost(const NumberRange& numbers);
// Takes a payload that decode() passed.
NumberRange decode_lost(absl::Span<const std::byte> payload);

}  // namespace nezha::flare
