// SPDX-License-Identifier: Apache-2.0
// Messages and segments as the two halves of a channel, and its users, see them.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "common/buffer_pool.h"
#include "common/clock.h"
#include "transport/wire.h"

namespace nezha {

// A device's number in its process. The links of a channel have the same numbers.
using Rail = int;
constexpr Rail kAnyRail = -1;
constexpr int kMaxRails = 16;

// A segment of a whole number of these bytes fills packets of 32 KiB, or half as many of 64 KiB, as
// far as the kernel fills them itself, with whole frames of 1500 bytes. Anything beyond would be a
// packet of its own, and the cost of a packet depends little on its length.
constexpr size_t kPacket = 31232;
// Bytes of payload in each of a long message's segments on a fast rail: 8 packets of 32 KiB, or 4
// of 64 KiB, also of frames of 9000 bytes.
constexpr size_t kLongSegment = 8 * kPacket;
// The longest segment also has a rest that fills no packet of its own, which would cost one in any
// case.
constexpr size_t kLongestSegment = kLongSegment + kPacket;

// A set of rails.
using RailMask = uint32_t;
constexpr RailMask kAllRails = ~RailMask{0};
constexpr RailMask rail_bit(Rail rail) { return RailMask{1} << rail; }
template <typename F>
void for_each_rail(RailMask rails, F f) {
  for (; rails != 0; rails &= rails - 1) f(static_cast<Rail>(std::countr_zero(rails)));
}

// The receiver of a message. All calls but `digest` are made under Progress's lock, and none after
// the message was cancelled or `failed` was called.
class Receiver {
 public:
  // Returns whether this receiver takes the message, of which at least the first segment has come.
  // If it does not, `mismatched` follows. Is called before all else, and only if the ticket was
  // posted as one that asks.
  virtual bool accepts(const wire::MessageInfo& /*theirs*/) { return true; }
  // Returns where to put the segment's `length` bytes. Is called once for each segment. The memory
  // must stay until `landed` was called for it or the message was cancelled. Returns null if no
  // correct peer cuts a segment like this: offset and length come from the network, and are only
  // known to lie inside the message.
  virtual std::byte* place(uint64_t offset, size_t length) = 0;
  // The segment is in its place, and came by `rail`. A message of no bytes lands once, with length
  // 0.
  virtual void landed(uint64_t offset, size_t length, Rail rail) = 0;
  // Returns whether the segment that `place` has just been called for may be digested. If so, the
  // rail's thread that receives it does what takes long, without the lock.
  virtual bool digests(uint64_t /*offset*/, size_t /*length*/) const { return false; }
  // The segment is at `memory`, where `place` put it. Is called without the lock, beside any other
  // call. The receiver and the memory stay until it returns. It is called at most once for each
  // segment that is not dropped. `digested` follows, unless the message is cancelled.
  virtual void digest(uint64_t /*offset*/, size_t /*length*/, std::byte* /*memory*/) {}
  // Is called in place of `landed` for a segment that `digest` was called for.
  virtual void digested(uint64_t offset, size_t length, Rail rail) { landed(offset, length, rail); }
  // The message will not come. Is called once. The receiver may cancel the ticket; else the inbox
  // does.
  virtual void failed(const absl::Status& why) = 0;
  // The message will not come: what the peer sent instead, by that context and tag, differs from
  // what was posted. Is called once; the ticket is gone.
  virtual void mismatched(const wire::MessageInfo& theirs) = 0;

 protected:
  ~Receiver() = default;
};

// What a receiver does with a segment without the lock; see Receiver::digest.
struct Digest {
  Receiver* receiver = nullptr;  // null: nothing
  uint64_t offset = 0;
  size_t length = 0;  // bytes
  std::byte* memory = nullptr;

  explicit operator bool() const { return receiver != nullptr; }
  void operator()() const { receiver->digest(offset, length, memory); }
};

// The sender of a message. All calls are made under Progress's lock.
class Sender {
 public:
  // The memory of [offset, offset + length) is no longer read: it was acknowledged, or copied.
  virtual void released(uint64_t offset, size_t length) = 0;
  // All of the message's memory has been released, and all of it has been handed to the links or
  // was copied at once. This answers Outbox::settle. Nothing more is called.
  virtual void settled() = 0;
  // The message cannot be sent. Is called once, and nothing after it. The message may be abandoned,
  // and is if it was not.
  virtual void failed(const absl::Status& why) = 0;

 protected:
  ~Sender() = default;
};

class OutMessage;

// A part of a message on its way out.
struct OutSegment {
  wire::DataHeader header;
  const std::byte* data = nullptr;
  uint32_t length = 0;  // bytes
  uint8_t flags = 0;
  bool queued = false;   // it is in the scheduler: no link has it
  bool is_end = false;   // all that follows it in its message has been pushed
  bool written = false;  // the link no longer reads its memory
  Rail rail = kAnyRail;  // the queue or link it is on
  RailMask allowed = kAllRails;
  OutMessage* message = nullptr;
  size_t index_in_message = 0;
  Buffer retained;  // the copy, once the sender's memory was released

  bool counted() const { return (flags & wire::kFlagAckNow) != 0; }
};

}  // namespace nezha
