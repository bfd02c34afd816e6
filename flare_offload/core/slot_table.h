// SPDX-License-Identifier: Apache-2.0
// A switch's part of one session: the blocks in flight, and the protocol by which each of them is
// reduced exactly once, whatever the network loses, repeats, reorders or delays.
//
// A session has a window of W blocks, and a switch has 2W slots for it; the block with sequence
// number s lies in slot s mod 2W. A host sends block s only when it holds the result of s-W (it
// sends the first W at once), so a contribution to s+2W shows that its host holds the result of
// s+W. Every host contributed to s+W, and so held the result of s before. Nobody can need the block
// in slot s any more: this is the one moment at which the slot is reused. Until then it keeps a
// finished block's result, for a child whose copy was lost and which sends its contribution again:
//
//   contribution to s from child c, the slot being at block n
//     s older than n         a late duplicate: dropped
//     s = n + 2W, n is done  the slot goes on to s, and:
//     c has contributed      done: the result, to c. Sent up: the partial again, to the parent.
//                            Filling: kPending with the ranks that are missing, to c
//     c has not              combined; if it was the last, the root has the result, and sends it to
//                            all children; another switch sends its partial up, and keeps it
//     anything else          no host does that: dropped
//   from the parent, for a block that was sent up: the result is kept and sent to all children;
//   kPending is passed on to them
//
// A contribution to another operation than the block's others spoils the block: the switch cannot
// know which one is right, so it tells all ranks at once who differs, and the block stays spoilt.
// All children of a finished block have agreed; a later contribution that differs is a violation.
//
// A switch has no timers: only hosts send again after a timeout (window.h). Besides, every sender
// sends again what its receiver asks for, because a gap in the numbers of its frames shows that it
// is lost (sent_log.h). The bitmap alone (D. De Sensi et al.: Flare, 2021, section 4.1) lets a late
// duplicate open a block again, and two slots a block without sequence numbers (A. Sapio et al.:
// SwitchML, 2021) let a contribution be counted twice: tests/model has the proof for small cases.
// Sequence numbers wrap and are compared as in RFC 1982.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "flare_offload/core/aggregation.h"
#include "flare_offload/core/sent_log.h"
#include "flare_offload/wire/frame.h"

namespace nezha::flare {

struct SlotTableOptions {
  uint32_t window = 0;     // W, blocks; a power of two, at most kMaxWindow
  uint32_t first_seq = 0;  // the session's first block
  // The ranks below each child, for which the child's contributions stand.
  std::vector<RankRange> children;
  bool is_root = true;        // false if there is a parent
  size_t payload = 0;         // the most bytes of a block's elements; at most kMaxPayload
  bool reproducible = false;  // results do not depend on the order of arrival: TreeAggregation
  // The number of buffers of a block if results need not be reproducible: 1 is a SingleBuffer, and
  // 2 up to the number of children are a MultiBuffer.
  int buffers = 1;
};

constexpr uint32_t kMaxWindow = 1 << 16;

// Returns kInvalidArgument, whose text says what is wrong, if no switch can serve such a session.
absl::Status check(const SlotTableOptions& options);

// Takes the frames that a table sends. Headers are complete except for session, generation and
// child. Payloads are valid only during the call.
class Outlet {
 public:
  virtual ~Outlet() = default;
  virtual void to_parent(const FrameHeader& header, absl::Span<const std::byte> payload) = 0;
  virtual void to_child(int child, const FrameHeader& header,
                        absl::Span<const std::byte> payload) = 0;
  virtual void to_children(const FrameHeader& header, absl::Span<const std::byte> payload) = 0;
};

struct SlotTableCounters {
  uint64_t blocks = 0;      // finished
  uint64_t combined = 0;    // contributions
  uint64_t duplicates = 0;  // contributions that were there already, and have been answered
  uint64_t resent = 0;      // results and partials that were sent again
  uint64_t stale = 0;       // frames for blocks that nobody can need any more
  uint64_t pendings = 0;    // answers that a block waits for others
  uint64_t lost = 0;        // frames that were asked for again
  uint64_t mismatches = 0;  // blocks spoilt by contributions to different operations
  uint64_t violations = 0;  // frames that break the protocol
};

// A pure state machine: no I/O, no clock, and no allocation after its construction except for the
// payloads of frames without elements. Not thread-safe.
class SlotTable {
 public:
  // The options must pass check(). The outlet outlives this.
  SlotTable(const SlotTableOptions& options, Outlet* outlet);

  // Returns the bytes that a table with these options takes, without the allocator's own. They are
  // its share of the switch's memory, which is fixed when the session is installed.
  static size_t memory_of(const SlotTableOptions& options);

  // Handle frames of this session and generation that decode() accepted. `child` is below the
  // number of children.
  void from_child(int child, const Frame& frame);
  void from_parent(const Frame& frame);

  const SlotTableCounters& counters() const { return counters_; }

 private:
  enum class Phase : uint8_t { kUnused, kFilling, kUp, kDone };
  struct Slot {
    Phase phase = Phase::kUnused;
    BlockId block;         // in phase kUnused only its seq: 2W before the slot's first block
    size_t length = 0;     // bytes of each contribution, and of the result
    uint64_t arrived = 0;  // a bit for each child whose contribution is in the aggregation
    std::optional<Mismatch> mismatch;  // the block is spoilt
    std::unique_ptr<Aggregation> aggregation;
  };

  static std::unique_ptr<Aggregation> make_aggregation(const SlotTableOptions& options,
                                                       const TreeShape& shape, std::byte* memory);
  // Returns the bytes of all slots' buffers.
  static size_t buffers_size(const SlotTableOptions& options);
  Slot& slot_of(uint32_t seq) { return slots_[seq % slots_.size()]; }
  // Returns whether the block is in the slot, or may enter it now. Counts the frame if neither is
  // so.
  bool is_due(const Slot& slot, uint32_t seq);
  void contribute(int child, const Frame& frame);
  void open(Slot& slot, const BlockId& block, size_t length);
  void answer_duplicate(const Slot& slot, int child);
  void complete(Slot& slot);
  void finish(Slot& slot);  // its result is there
  // Tells all neighbours; answer_duplicate() tells them again.
  void spoil(Slot& slot, const Mismatch& mismatch);
  void on_mismatch(const Frame& frame);
  void resend_results(int child, const NumberRange& numbers);
  void resend_partials(const NumberRange& numbers);

  // These return a header that is not numbered.
  FrameHeader header_to_children(FrameType type, const BlockId& block) const;
  FrameHeader header_to_parent(FrameType type, const BlockId& block) const;
  void resend_result(const Slot& slot, int child);
  void send_partial(const Slot& slot);
  void resend_partial(const Slot& slot);
  absl::Span<const std::byte> total(const Slot& slot) const;
  std::vector<std::byte> missing_ranks(const Slot& slot) const;

  const SlotTableOptions options_;
  const uint64_t all_;  // the value of `arrived` when complete
  Outlet* const outlet_;
  const TreeShape shape_;
  std::vector<std::byte> memory_;
  std::vector<Slot> slots_;
  SentLog results_;
  SentLog partials_;
  std::vector<GapFinder> from_children_;
  GapFinder from_parent_;
  SlotTableCounters counters_;
};

}  // namespace nezha::flare
