// SPDX-License-Identifier: Apache-2.0
// The segments that a link's peer has begun and that are not complete here, in the order in which
// they will land, and the RDMA READs that fetch the long ones.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "common/recycled.h"
#include "transport/rdma/adapter.h"
#include "transport/rdma/message.h"
#include "transport/rdma/queue_pair.h"
#include "transport/rdma/slots.h"

namespace nezha::rdma {

class Landings {
 public:
  // `read_id`: the id of the work requests of READs.
  Landings(Adapter& adapter, QueuePair& pair, Slots& slots, uint32_t read_id)
      : adapter_(adapter), pair_(pair), slots_(slots), read_id_(read_id) {}
  ~Landings() { release_all(); }
  Landings(const Landings&) = delete;
  Landings& operator=(const Landings&) = delete;

  // Begins a segment of `length` bytes that comes in messages and goes to `place` (nullptr: it is
  // dropped). `beginning` is what has come; the rest follows by `more`.
  void copy(std::byte* place, uint32_t length, absl::Span<const std::byte> beginning);
  // Begins a segment that is read. `fetch` asks for it.
  void read(std::byte* place, uint32_t length, const Elsewhere& from);
  // Adds to the last segment. Returns an error if less of it is left, or nothing.
  absl::Status more(absl::Span<const std::byte> bytes);
  // Asks for as many READs as can be under way.
  absl::Status fetch();
  // The oldest READ is complete. Returns how many bytes that was.
  uint32_t on_read();

  // Drops the nth segment from the oldest. Returns false if the device is writing to its place;
  // then only the end of the queue pair can stop that.
  bool drop(size_t nth);

  // Returns whether the oldest segment is complete. If so, takes it out.
  bool take_complete();
  size_t size() const { return segments_.size(); }
  // Returns whether more bytes of the last segment are to come in messages.
  bool is_copying() const {
    return !segments_.empty() && segments_.back().is_copied && !segments_.back().is_complete();
  }

  // The queue pair has ended: no memory is held any more.
  void release_all() noexcept;

 private:
  struct Segment {
    std::byte* place;
    uint32_t length;
    uint32_t done = 0;        // bytes
    bool is_copied = false;   // else READs fetch it
    bool is_asked = false;    // a READ is under way
    bool is_bounced = false;  // its place cannot be registered: READs go to the slots' memory
    bool is_held = false;     // this object holds its place
    uint32_t key = 0;         // the key of its place
    Elsewhere from = {};
    bool is_complete() const { return done == length; }
  };

  void prepare(Segment& segment);
  absl::Status ask(Segment& segment);
  void release(Segment& segment) noexcept;
  static void take_copy(Segment& segment, absl::Span<const std::byte> bytes);

  Adapter& adapter_;
  QueuePair& pair_;
  Slots& slots_;
  const uint32_t read_id_;
  RecycledDeque<Segment> segments_;
  int asked_ = 0;  // READs under way, of the oldest segments that are not complete
};

}  // namespace nezha::rdma
