// SPDX-License-Identifier: Apache-2.0
// The memory that is registered with one device, by range.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "transport/held_memory.h"
#include "transport/rdma/verbs.h"

namespace nezha::rdma {

// How much memory may be registered, with all devices of the process together.
struct PinnedLimit {
  uint64_t bytes = UINT64_MAX;
  bool is_named = false;  // by NEZHA_RDMA_PINNED; else it follows from the limit of locked memory

  static PinnedLimit of_process();
};

// What names memory in a work request.
struct Region {
  uint32_t lkey = 0;
  uint32_t rkey = 0;
  bool is_writable = true;  // the device may write to it
};

// The memory that somebody holds, which stays mapped as it is meanwhile. Ranges may be equal,
// nested, or overlap. A range is registered in pieces, each when the first segment falls into it,
// and with nothing outside the range, since memory there may come and go. When the last holder of a
// range has released it, its pieces are deregistered. But a piece that may serve segments of other
// ranges that overlap it stays until those are released, too. So no registration that is found
// outlives its memory, and none ends under a transfer that the holder of the memory waits for.
//
// Thread-safe: memory comes and goes on any thread.
class MemoryMap final : public HeldMemory::Listener {
 public:
  static constexpr size_t kLongestSegment = size_t{1} << 20;
  static constexpr size_t kLongestPiece = size_t{16} << 20;

  // `device`: its name, for the log. `sink_access`: the access that a READ needs to write to
  // memory.
  MemoryMap(const Verbs& verbs, ibv_pd* domain, std::string device,
            PinnedLimit limit = PinnedLimit::of_process(),
            int sink_access = IBV_ACCESS_LOCAL_WRITE);
  ~MemoryMap();  // deregisters all
  MemoryMap(const MemoryMap&) = delete;
  MemoryMap& operator=(const MemoryMap&) = delete;

  void hold(const std::byte* begin, size_t bytes) override;
  // Takes back one `hold` of the same range, which must be released before the memory goes. A range
  // that nobody holds is left alone.
  void release(const std::byte* begin, size_t bytes) noexcept override;

  // Returns the keys of a segment of at most kLongestSegment bytes; nullopt if nobody holds all of
  // it, or it cannot be registered.
  std::optional<Region> find(const std::byte* begin, size_t bytes);

 private:
  using Address = uintptr_t;
  struct Piece {
    ibv_mr* region = nullptr;  // null: the memory cannot be registered
    uint64_t bytes = 0;        // the bytes that are pinned
    bool is_writable = true;   // the device may write to it
  };
  struct Range {
    Address begin = 0;
    Address end = 0;
    uint64_t age = 0;  // the smaller, the older
    size_t holders = 0;
    std::map<size_t, Piece> pieces;  // keyed by number
  };
  // A piece of a range that is released, and the ranges that it may serve.
  struct Remnant {
    Piece piece;
    std::vector<const Range*> served;
  };
  // The ranges that cover the addresses from a bound to the next bound, the oldest first.
  using Cover = std::vector<Range*>;
  using Covers = std::map<Address, Cover>;

  Covers::iterator split(Address at);
  void join(Covers::iterator it);
  void cover(Range& range);
  void uncover(const Range& range) noexcept;
  std::vector<const Range*> younger_than(const Range& range, Address begin, Address end) const;
  void give_up(Range& range) noexcept;
  void forget(const Range& range) noexcept;
  const Piece* make_piece(Range& range, size_t number);
  ibv_mr* register_piece(Address begin, size_t bytes, bool& is_writable);
  void deregister(const Piece& piece) noexcept;
  void warn(size_t bytes);

  const Verbs& verbs_;
  ibv_pd* const domain_;
  const std::string device_;
  const PinnedLimit limit_;
  const int sink_access_;

  std::mutex mutex_;
  std::map<std::pair<Address, Address>, std::unique_ptr<Range>> ranges_;  // keyed by begin and end
  Covers
      covers_;  // by bound; what lies before the first has no cover, nor has what follows the last
  std::vector<Remnant> remnants_;
  uint64_t next_age_ = 0;
  uint64_t pinned_ = 0;      // bytes, of whole pages, of this map
  bool is_refused_ = false;  // the kernel allows no more, until something is deregistered
  bool has_warned_ = false;
};

}  // namespace nezha::rdma
