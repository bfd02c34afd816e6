// SPDX-License-Identifier: Apache-2.0
// The wire format between two nezha processes: all of it is in this file.
//
// Integers are little-endian and unsigned; reserved fields are sent as zero and ignored when
// received. Nothing read from a socket is used before it passed a `decode` of this file. The
// channel checks what those cannot know (whether a message exists, whether a range fits it).
//
// A connection begins with a handshake: the connecting side sends a Hello (128 bytes), the
// accepting side answers with a Welcome (32 bytes) and closes the connection unless its code is
// kAccepted. A Hello, and a Welcome of that code, is followed by the greeting of the kind of rail
// (transport/handshake.h), which is empty on a tcp rail. After that both sides send frames. A frame
// is a FrameHeader (24 bytes) and a body whose length the header gives:
//
//   kData      DataHeader (72 bytes), then `length` bytes of payload
//   kAck       nothing: the acknowledgement and the credit are in every frame's header
//   kGrant     u64 message number: the receiver has entered; the whole message may be sent
//   kLinkDown  u64 link id, u32 bytes: the sender gave that link up and resends what it had not
//              acknowledged. The bytes are 0, unless packets of up to so many bytes did not get
//              through by the link though small ones did
//   kPing      nothing; the answer is a kAck
//   kGoodbye   nothing: the process leaves in good order; acknowledge all at once
//   kAbort     u64 context high, u64 context low, u32 rank that failed first, u32 number of lost
//              ranks, u32 each of those ranks, then a text
//   kRollCall  u64 context high, u64 context low, u32 tag, u32 rank that the frame is about, u64
//              ordinal of the operation in that tag, from 1, u64 the operation's signature at that
//              rank (0: not known), u8 what the frame says of the rank (RollCallKind)
//   kLeave     u64 context high, u64 context low: the sender has closed that context, and all that
//              it had sent for it has been acknowledged
//   kFiller    anything: it means nothing, and takes the network's time
//   kJoin      u64 context high, u64 context low: the sender is in that context, too; a connection
//              may serve several contexts, and its Hello names only one
//
// A message is a run of bytes from one process to another, cut into segments (kData frames) that
// may take any of the links between the two, in any order, and more than once: what a dead link
// left unacknowledged is sent again on another with the same offset and length. Segments are
// acknowledged per link, by count, since each link delivers in order.
//
// Messages of one direction of a pair are numbered from 1. The receiver matches them by (context,
// tag), in the order of their numbers. As links overtake each other it may see number 9 before
// number 8, so each segment says how far back the previous message of the same context and tag is
// (`previous`). If all of that message had been acknowledged when this one began, it says 0.
//
// Flow control: segments that the receiver has not granted are `charged` against a credit, which is
// a cumulative count of bytes that the receiver raises as it consumes them. A segment's charge is
// its length rounded up to a power of two, at least 256, which is what holding it takes. A sender
// without credit announces its message by a segment without payload, which costs nothing, and waits
// for the grant.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/unique_id.h"

namespace nezha::wire {

constexpr uint16_t kVersion = 10;

// Limits on what a peer may claim.
constexpr uint32_t kMaxSegment = 4u << 20;           // bytes of payload in one frame
constexpr uint64_t kMaxMessage = uint64_t{1} << 60;  // bytes
constexpr size_t kMaxLost = 64;                      // ranks that an abort names
constexpr uint32_t kMaxControlBody = 1024;           // bytes, of any frame but kData
constexpr size_t kMaxRailName = 31;                  // bytes

// Charged bytes that the two ends of a channel may send each other before they hear of each other.
// Ranks leave an operation and enter the next up to a millisecond apart, and a grant may wait for
// as much as the granting rank is sending to others by the same NIC. So this is more than a ring
// begins with (1 MiB in segments that may take twice their length), and the ring's first lap needs
// no grant. It is also the most that this process holds of a peer's messages that nobody has asked
// for yet.
constexpr uint64_t kInitialCredit = 2 << 20;
// Returns the bytes that holding a segment of that length takes: memory comes in powers of two,
// from 256.
constexpr uint64_t charge(uint64_t length) {
  return length == 0 ? 0 : std::bit_ceil(std::max<uint64_t>(length, 256));
}

// ---- Handshake ---------------------------------------------------------------------------------

constexpr size_t kHelloSize = 128;
constexpr size_t kWelcomeSize = 32;

struct Hello {
  UniqueId job;          // a context that both processes are in
  UniqueId source;       // the process that connects
  UniqueId target;       // the process it means to reach
  uint64_t link_id = 0;  // names this connection
  // Counts the connections of this pair on this rail. By it both sides keep the same one of two
  // connections that cross each other, and a new connection replaces a dead one.
  uint32_t generation = 0;
  std::string rail;  // its name in the process that this one means to reach
};

enum class WelcomeCode : uint16_t {
  kAccepted = 0,
  kWrongVersion = 1,  // the versions differ; `version` has the acceptor's
  kUnknownJob = 2,
  kWrongTarget = 3,
  kNoRail = 4,     // the acceptor has no device on that rail
  kDuplicate = 5,  // the acceptor keeps, or is making, another connection for this pair and rail
  kClosing = 6,
};

struct Welcome {
  WelcomeCode code = WelcomeCode::kAccepted;
  uint16_t version = kVersion;
  uint32_t generation = 0;
};

using HelloBytes = std::array<std::byte, kHelloSize>;
using WelcomeBytes = std::array<std::byte, kWelcomeSize>;

HelloBytes encode(const Hello& hello);
WelcomeBytes encode(const Welcome& welcome);
// Returns kFailedPrecondition if the peer speaks another version, kInvalidArgument if it is not
// nezha.
absl::StatusOr<Hello> decode_hello(const HelloBytes& bytes);
absl::StatusOr<Welcome> decode_welcome(const WelcomeBytes& bytes);

// ---- Frames ------------------------------------------------------------------------------------

enum class FrameType : uint8_t {
  kData = 1,
  kAck = 2,
  kGrant = 3,
  kLinkDown = 4,
  kPing = 5,
  kGoodbye = 6,
  kAbort = 7,
  kRollCall = 8,
  kLeave = 9,
  kFiller = 10,
  kJoin = 11,
};

constexpr size_t kFrameHeaderSize = 24;
constexpr size_t kDataHeaderSize = 72;

// Flags of a kData frame.
constexpr uint8_t kFlagCharged = 1;  // the payload was charged against the credit
constexpr uint8_t kFlagAckNow = 2;   // acknowledge at once, not with the next frame that goes out
// The sender has more than its credit allows, or waits until the receiver asks for the message.
constexpr uint8_t kFlagWantGrant = 4;
// The segment has no payload: the sender has given the message up; `offset` says how many of its
// bytes come in all.
constexpr uint8_t kFlagAbandoned = 8;

struct FrameHeader {
  FrameType type = FrameType::kAck;
  uint8_t flags = 0;
  uint32_t length = 0;  // kData: of the payload; else: of the body. Bytes
  uint64_t acked = 0;   // kData frames of this link that the sender of this frame has received
  uint64_t credit = 0;  // charged bytes that the peer may have sent since the channel began
};

// A message's name and what both ends must agree on before any of it is used.
struct MessageInfo {
  uint64_t context = 0;    // the context's id, low half
  uint64_t tag = 0;        // tells the messages of concurrent operations apart
  uint64_t signature = 0;  // what the operation is; see collectives/signature.h
  uint64_t total = 0;      // bytes in all
  uint32_t plan = 0;       // the plan's version
  uint32_t epoch = 0;
  uint32_t root = 0;  // a rank; only of an operation that has a root

  friend bool operator==(const MessageInfo&, const MessageInfo&) = default;
};

struct DataHeader {
  MessageInfo info;
  uint64_t number = 0;    // the message's, in this direction of the pair
  uint64_t offset = 0;    // the payload's place in the message, bytes; see kFlagAbandoned
  uint32_t previous = 0;  // see above
  // How often the segment was sent before, by links that the sender has given up since. If two
  // attempts are under way at once, the higher one is the one that will be complete.
  uint32_t attempt = 0;
};

void encode(const FrameHeader& header, std::byte* out);  // kFrameHeaderSize bytes
void encode(const DataHeader& header, std::byte* out);   // kDataHeaderSize bytes
absl::StatusOr<FrameHeader> decode_frame(const std::byte* bytes);
// `length` is the frame's: the range must lie inside the message.
absl::StatusOr<DataHeader> decode_data(const std::byte* bytes, uint32_t length);

// ---- Control frames ----------------------------------------------------------------------------

struct LinkDown {
  uint64_t link = 0;
  uint32_t lost_packet = 0;  // bytes; 0: the sizes of packets are not the reason
};

struct Abort {
  UniqueId context;
  uint32_t rank = 0;
  std::vector<uint32_t> lost;  // ranks; at most kMaxLost are sent
  std::string reason;
};

enum class RollCallKind : uint8_t {
  kEntered = 1,      // the rank has entered the operation
  kWhoIsAbsent = 2,  // the rank has entered it, and asks who has not
  kAbsent = 3,       // the rank has not entered it
  kSilent = 4,       // the rank does not answer another one, which sends this
};

struct RollCall {
  UniqueId context;
  uint32_t tag = 0;
  uint32_t rank = 0;
  uint64_t ordinal = 0;
  uint64_t signature = 0;
  RollCallKind kind = RollCallKind::kEntered;
};

// These encode bodies; the caller puts the header in front.
std::string encode_number(uint64_t number);  // kGrant
std::string encode_id(const UniqueId& id);   // kLeave, kJoin
std::string encode(const LinkDown& down);
std::string encode(const Abort& abort);
std::string encode(const RollCall& call);
absl::StatusOr<uint64_t> decode_number(absl::Span<const std::byte> body);
absl::StatusOr<UniqueId> decode_id(absl::Span<const std::byte> body);
absl::StatusOr<LinkDown> decode_link_down(absl::Span<const std::byte> body);
absl::StatusOr<Abort> decode_abort(absl::Span<const std::byte> body);
absl::StatusOr<RollCall> decode_roll_call(absl::Span<const std::byte> body);

}  // namespace nezha::wire
