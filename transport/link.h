// SPDX-License-Identifier: Apache-2.0
// A link: an established connection between two processes on one rail. It has no policy: the
// channel decides what it sends, and what becomes of what it did not deliver.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/clock.h"
#include "common/recycled.h"
#include "transport/message.h"
#include "transport/wire.h"

namespace nezha {

class Link;

// The owner of a link: a channel. All calls are made under Progress's lock.
class LinkOwner {
 public:
  // A segment's header came. Returns where its payload goes; nullptr if it is dropped. An error
  // means that the peer breaks the protocol, and fails the link. Several segments may be under way
  // on a link: this may be called again before the previous segment has landed.
  virtual absl::StatusOr<std::byte*> on_segment(Link& link, const wire::FrameHeader& frame,
                                                const wire::DataHeader& data) = 0;
  // Returns what is to be done with that segment, without the lock, before it lands. Is called
  // right after on_segment, and not at all by a link that cannot do it.
  virtual Digest digest_of(Link& /*link*/) { return {}; }
  // The payload of the oldest segment under way is complete, or was dropped. Segments land in the
  // order in which their headers came. The link has counted this one as received. `is_digested`:
  // its digest is done, too.
  virtual void on_landed(Link& link, bool is_digested) = 0;
  // The link no longer reads the segment's memory. A link that learns this only from the
  // acknowledgement calls on_acked alone, which implies it.
  virtual void on_written(Link& link, OutSegment& segment) = 0;
  virtual void on_acked(Link& link, OutSegment& segment) = 0;
  virtual void on_frame(Link& link, const wire::FrameHeader& frame,
                        absl::Span<const std::byte> body) = 0;
  // The link is of no use any more. The error is kUnavailable if the peer's end has closed or reset
  // it. Is called once, and never from inside of a call to the link. The owner destroys the link
  // when it likes, which fences it.
  virtual void on_failed(Link& link, const absl::Status& why) = 0;
  // Returns the credit to put into the header of each frame.
  virtual uint64_t credit() const = 0;

 protected:
  ~LinkOwner() = default;
};

class Link {
 public:
  virtual ~Link() = default;  // fences: nothing reads or writes anybody's memory afterwards
  Link() = default;
  Link(const Link&) = delete;
  Link& operator=(const Link&) = delete;

  // Begins to read. Callers call this once, before anything else.
  virtual void start(LinkOwner* owner, Rail rail, uint64_t id) = 0;

  // Sends; never blocks. The segment and its memory stay until on_acked, until withdraw() has
  // returned, or until the link is destroyed. Segments are delivered and acknowledged in order.
  virtual void submit(OutSegment& segment) = 0;

  // The memory of a segment that was submitted and is not written is about to be given back:
  // segment.data is a copy from now on, and the original is not read after this returns. A link
  // whose peer may be reading that memory must fail itself, which fences the memory at once, and
  // call on_failed later. Calls nothing of the owner. May be called after the link has failed.
  virtual void withdraw(OutSegment& segment) = 0;

  // Sends a control frame, ahead of most segments that were not begun yet.
  virtual void send(wire::FrameType type, absl::string_view body) = 0;

  // Sends an acknowledgement if anything was received since the last frame that went out.
  virtual void flush_ack() = 0;

  // Sends an acknowledgement in any case, in answer to a ping. If there is no room for it now, the
  // link sends it later.
  virtual void answer() = 0;

  // Drops the rest of a segment under way: the `nth` in the order of their headers, from 0, the
  // oldest. Nothing is written to its place after this returns. on_landed is still called for it,
  // unless the link fails. Calls nothing of the owner. May be called from inside of on_segment, for
  // segments that came before that one. Returns false if that is too late, because the segment is
  // complete and its digest done.
  virtual bool drop_incoming(size_t nth) = 0;

  // Stops reading; the link is about to be destroyed. Returns whether the oldest segment under way
  // is complete and its digest done, though on_landed was not called for it: then it has landed.
  virtual bool halt() { return false; }

  // Returns the segments that were submitted and not acknowledged, oldest first.
  virtual const RecycledDeque<OutSegment*>& unacked() const = 0;

  // The packets that the link has sent since it was made, and how many of them were lost on the way
  // and had to be sent again.
  struct Packets {
    uint64_t sent = 0;
    uint64_t lost = 0;
  };

  // Returns the bytes that were submitted or sent and that the peer's machine does not have yet;
  // the maximum if this kind of link cannot tell.
  virtual uint64_t undelivered() const { return std::numeric_limits<uint64_t>::max(); }

  // How the link is now. What a kind of link cannot tell keeps its value from here.
  struct Health {
    // Bytes sent that the peer's machine has.
    uint64_t delivered = 0;
    // Grows while the link carries anything but headers: bytes that were read, and bytes written
    // that the peer's machine has for certain. It counts bytes because a large segment takes long
    // to complete on a slow link. Pings and acknowledgements are headers alone: a path that loses
    // large frames may pass them.
    uint64_t moved = 0;
    // For how long nothing at all has come from the peer's machine while it owes a confirmation of
    // what was sent and reaches it; 0: it owes none. The peer's process has no part in this. What
    // comes from the machine need not confirm anything: `delivered` shows whether it does.
    Nanos unanswered = 0;
    // How long the confirmation of what is sent now may take, judging by recent ones; 0: it comes
    // at once.
    Nanos confirmation_time = 0;
    Packets packets;
  };
  virtual Health health() const = 0;

  // Returns the bytes of the largest packets that the link sends; 0 if they are not known.
  virtual size_t largest_packet() const { return 0; }

  // Sends so many frames as fast as the network takes them: kFiller frames, and a kPing as the
  // last. Whatever else is sent goes ahead of those that were not begun.
  virtual void send_burst(int /*frames*/) { send(wire::FrameType::kPing, {}); }
  // Returns whether the peer's machine has all of the last burst.
  virtual bool has_burst_arrived() const { return true; }

  // Returns whether the peer's machine has all that was sent; true if this kind of link cannot
  // tell.
  virtual bool has_arrived() const { return true; }

  // From here on nothing reads or writes anybody's memory, and the peer sees the link's end.
  virtual void stop() noexcept {}

  // Delivers to the peer what was sent before, then tells it that nothing more comes. It is for a
  // clean end.
  virtual void shut_down() = 0;

  Rail rail() const { return rail_; }
  uint64_t id() const { return id_; }

 protected:
  Rail rail_ = kAnyRail;
  uint64_t id_ = 0;  // both ends know the link by it
};

}  // namespace nezha
