// SPDX-License-Identifier: Apache-2.0
#include "transport/rdma/memory_map.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <new>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/descriptor.h"
#include "common/environment.h"
#include "common/log.h"

namespace nezha::rdma {
namespace {

// Bytes from the beginning of one piece to the beginning of the next. Pieces overlap by the longest
// segment, so that each segment lies within one piece.
constexpr size_t kStride = MemoryMap::kLongestPiece - MemoryMap::kLongestSegment;

// CAP_IPC_LOCK lifts the limit of locked memory.
bool may_lock_any() {
  constexpr int kCapIpcLock = 14;  // linux/capability.h
  const std::string status = read_file("/proc/self/status").value_or("");
  for (absl::string_view line : absl::StrSplit(status, '\n')) {
    uint64_t capabilities = 0;
    if (!absl::ConsumePrefix(&line, "CapEff:")) continue;
    return absl::SimpleHexAtoi(absl::StripAsciiWhitespace(line), &capabilities) &&
           (capabilities >> kCapIpcLock & 1) != 0;
  }
  return false;
}

// Registering pins whole pages.
uint64_t pinned_by(uintptr_t begin, size_t bytes) {
  static const auto kPage = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  return ((begin + bytes - 1) / kPage - begin / kPage + 1) * kPage;
}

// Bytes that the maps of all devices pin, since the kernel limits the process as a whole.
std::atomic<uint64_t> all_pinned{0};

struct PieceBounds {
  size_t number;
  uintptr_t begin;
  uintptr_t end;
};

// Returns the piece of the range from `begin` to `end` that contains the address. The last piece is
// never within the one before it.
PieceBounds piece_at(uintptr_t address, uintptr_t begin, uintptr_t end) {
  size_t number = (address - begin) / kStride;
  if (number > 0 && end - begin <= (number - 1) * kStride + MemoryMap::kLongestPiece) --number;
  const uintptr_t first = begin + number * kStride;
  return {number, first, first + std::min<size_t>(MemoryMap::kLongestPiece, end - first)};
}

}  // namespace

PinnedLimit PinnedLimit::of_process() {
  PinnedLimit limit;
  if (absl::SimpleAtoi(environment("NEZHA_RDMA_PINNED"), &limit.bytes)) {
    limit.is_named = true;
    return limit;
  }
  limit.bytes = UINT64_MAX;
  rlimit locked{};
  const bool is_limited = getrlimit(RLIMIT_MEMLOCK, &locked) == 0 &&
                          locked.rlim_cur != RLIM_INFINITY && !may_lock_any();
  // The rest is for the links' own memory, without which there is no link.
  if (is_limited) limit.bytes = locked.rlim_cur / 4 * 3;
  return limit;
}

MemoryMap::MemoryMap(const Verbs& verbs, ibv_pd* domain, std::string device, PinnedLimit limit,
                     int sink_access)
    : verbs_(verbs),
      domain_(domain),
      device_(std::move(device)),
      limit_(limit),
      sink_access_(sink_access) {}

MemoryMap::~MemoryMap() {
  for (const auto& [bounds, range] : ranges_) {
    for (const auto& [number, piece] : range->pieces) deregister(piece);
  }
  for (const Remnant& remnant : remnants_) deregister(remnant.piece);
}

// ---- Ranges ------------------------------------------------------------------------------------

void MemoryMap::hold(const std::byte* begin, size_t bytes) {
  const auto first = reinterpret_cast<Address>(begin);
  if (bytes == 0 || bytes > UINTPTR_MAX - first) return;
  const std::lock_guard lock(mutex_);
  const auto [entry, is_new] = ranges_.try_emplace({first, first + bytes});
  try {
    if (is_new) {
      entry->second = std::make_unique<Range>(Range{first, first + bytes, next_age_++, 0, {}});
      cover(*entry->second);
    }
  } catch (const std::bad_alloc&) {
    if (entry->second != nullptr) uncover(*entry->second);
    ranges_.erase(entry);
    throw;
  }
  ++entry->second->holders;
}

void MemoryMap::release(const std::byte* begin, size_t bytes) noexcept {
  const auto first = reinterpret_cast<Address>(begin);
  const std::lock_guard lock(mutex_);
  const auto entry = ranges_.find({first, first + bytes});
  if (entry == ranges_.end() || --entry->second->holders > 0) return;
  uncover(*entry->second);
  give_up(*entry->second);
  ranges_.erase(entry);
}

// Makes the address a bound. Returns the cover that begins there.
MemoryMap::Covers::iterator MemoryMap::split(Address at) {
  const auto next = covers_.lower_bound(at);
  if (next != covers_.end() && next->first == at) return next;
  Cover cover = next == covers_.begin() ? Cover() : std::prev(next)->second;
  return covers_.emplace_hint(next, at, std::move(cover));
}

// Removes the bound if the covers on both sides of it are the same.
void MemoryMap::join(Covers::iterator it) {
  const bool is_same =
      it == covers_.begin() ? it->second.empty() : std::prev(it)->second == it->second;
  if (is_same) covers_.erase(it);
}

void MemoryMap::cover(Range& range) {
  const auto end = split(range.end);
  const auto begin = split(range.begin);
  for (auto it = begin; it != end; ++it) it->second.push_back(&range);
}

// Works also for a range that is covered only in part, or has no bounds.
void MemoryMap::uncover(const Range& range) noexcept {
  auto it = covers_.lower_bound(range.begin);
  while (it != covers_.end() && it->first <= range.end) {
    std::erase(it->second, &range);
    join(it++);
  }
}

// ---- Pieces ------------------------------------------------------------------------------------

std::optional<Region> MemoryMap::find(const std::byte* begin, size_t bytes) {
  const auto first = reinterpret_cast<Address>(begin);
  if (bytes == 0 || bytes > kLongestSegment) return std::nullopt;
  const std::lock_guard lock(mutex_);
  const auto next = covers_.upper_bound(first);
  if (next == covers_.begin()) return std::nullopt;
  for (Range* range : std::prev(next)->second) {
    if (range->end - first < bytes) continue;
    const size_t number = piece_at(first, range->begin, range->end).number;
    const auto known = range->pieces.find(number);
    const Piece* piece = known != range->pieces.end() ? &known->second : make_piece(*range, number);
    if (piece == nullptr || piece->region == nullptr) return std::nullopt;
    return Region{piece->region->lkey, piece->region->rkey, piece->is_writable};
  }
  return std::nullopt;
}

// Returns null if the piece may be available later.
const MemoryMap::Piece* MemoryMap::make_piece(Range& range, size_t number) {
  const PieceBounds bounds = piece_at(range.begin + number * kStride, range.begin, range.end);
  const size_t bytes = bounds.end - bounds.begin;
  Piece piece;
  piece.bytes = pinned_by(bounds.begin, bytes);
  if (is_refused_ || piece.bytes > limit_.bytes || all_pinned > limit_.bytes - piece.bytes) {
    warn(piece.bytes);
    return nullptr;
  }
  Piece& made = range.pieces[number];
  piece.region = register_piece(bounds.begin, bytes, piece.is_writable);
  if (piece.region == nullptr && errno == ENOMEM) {
    is_refused_ = true;
    range.pieces.erase(number);
    warn(piece.bytes);
    return nullptr;
  }
  if (piece.region == nullptr) piece.bytes = 0;
  pinned_ += piece.bytes;
  all_pinned += piece.bytes;
  made = piece;
  return &made;
}

// Returns null, with errno, if the memory cannot be registered.
ibv_mr* MemoryMap::register_piece(Address begin, size_t bytes, bool& is_writable) {
  // NOLINTNEXTLINE(performance-no-int-to-ptr): it was a pointer
  auto* memory = reinterpret_cast<void*>(begin);
  ibv_mr* region = verbs_.reg_mr(domain_, memory, bytes, sink_access_ | IBV_ACCESS_REMOTE_READ);
  if (region != nullptr || errno == ENOMEM) return region;
  is_writable = false;  // some of it may be read-only
  return verbs_.reg_mr(domain_, memory, bytes, IBV_ACCESS_REMOTE_READ);
}

void MemoryMap::deregister(const Piece& piece) noexcept {
  if (piece.region == nullptr) return;
  verbs_.dereg_mr(piece.region);
  pinned_ -= piece.bytes;
  all_pinned -= piece.bytes;
  is_refused_ = false;
}

// The range is released, and covers nothing any more.
void MemoryMap::give_up(Range& range) noexcept {
  for (const auto& [number, piece] : range.pieces) {
    const PieceBounds bounds = piece_at(range.begin + number * kStride, range.begin, range.end);
    try {
      auto served = younger_than(range, bounds.begin, bounds.end);
      if (!served.empty()) {
        remnants_.push_back({piece, std::move(served)});
        continue;
      }
    } catch (const std::bad_alloc&) {
      // Without memory to remember the piece, a transfer may fail, and its link with it.
    }
    deregister(piece);
  }
  forget(range);
}

// Returns the ranges younger than this one. Segments in older ranges have got pieces of those
// ranges.
std::vector<const MemoryMap::Range*> MemoryMap::younger_than(const Range& range, Address begin,
                                                             Address end) const {
  std::vector<const Range*> younger;
  auto it = covers_.upper_bound(begin);
  if (it != covers_.begin()) --it;
  for (; it != covers_.end() && it->first < end; ++it) {
    for (const Range* other : it->second) {
      const bool is_listed = std::find(younger.begin(), younger.end(), other) != younger.end();
      if (other->age > range.age && !is_listed) younger.push_back(other);
    }
  }
  return younger;
}

void MemoryMap::forget(const Range& range) noexcept {
  std::erase_if(remnants_, [&](Remnant& remnant) {
    std::erase(remnant.served, &range);
    if (remnant.served.empty()) deregister(remnant.piece);
    return remnant.served.empty();
  });
}

void MemoryMap::warn(size_t bytes) {
  if (std::exchange(has_warned_, true)) return;
  const std::string limit =
      limit_.is_named
          ? absl::StrCat("NEZHA_RDMA_PINNED is ", limit_.bytes, " bytes; give a larger number")
          : "the process may lock no more memory; raise that limit: ulimit -l unlimited, or "
            "LimitMEMLOCK=infinity in a systemd unit";
  log().warn(
      "{}: {} bytes cannot be registered beside {} bytes, so long segments of that memory are "
      "copied, which is slower: {}",
      device_, bytes, pinned_, limit);
}

}  // namespace nezha::rdma
