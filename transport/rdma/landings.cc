// SPDX-License-Identifier: Apache-2.0
#include "transport/rdma/landings.h"

#include <algorithm>
#include <cstring>
#include <optional>

#include "absl/strings/str_cat.h"

namespace nezha::rdma {

void Landings::copy(std::byte* place, uint32_t length, absl::Span<const std::byte> beginning) {
  Segment& segment =
      segments_.emplace_back(Segment{.place = place, .length = length, .is_copied = true});
  take_copy(segment, beginning);
}

absl::Status Landings::more(absl::Span<const std::byte> bytes) {
  if (!is_copying() || bytes.size() > segments_.back().length - segments_.back().done) {
    return absl::InvalidArgumentError("the peer sent more than a segment's payload");
  }
  take_copy(segments_.back(), bytes);
  return absl::OkStatus();
}

void Landings::take_copy(Segment& segment, absl::Span<const std::byte> bytes) {
  if (segment.place != nullptr && !bytes.empty()) {
    std::memcpy(segment.place + segment.done, bytes.data(), bytes.size());
  }
  segment.done += static_cast<uint32_t>(bytes.size());
}

void Landings::read(std::byte* place, uint32_t length, const Elsewhere& from) {
  Segment& segment =
      segments_.emplace_back(Segment{.place = place, .length = length, .from = from});
  if (place != nullptr) {
    prepare(segment);
  } else {
    segment.done = length;  // nothing is read
  }
}

void Landings::prepare(Segment& segment) {
  MemoryMap& memory = adapter_.memory();
  auto region = memory.find(segment.place, segment.length);
  if (!region) {
    memory.hold(segment.place, segment.length);
    segment.is_held = true;
    region = memory.find(segment.place, segment.length);
    if (!region) release(segment);
  }
  if (region && !region->is_writable) region.reset();
  segment.is_bounced = !region;
  segment.key = region ? region->lkey : 0;
}

// READs complete in the order in which they were asked for, which is the order of the segments:
// while one takes several READs, no later segment is asked for.
absl::Status Landings::fetch() {
  for (Segment& segment : segments_) {
    if (segment.is_copied || segment.is_complete()) continue;
    if (!segment.is_asked && asked_ == pair_.most_reads()) break;
    if (absl::Status status = ask(segment); !status.ok()) return status;
    if (segment.is_bounced) break;
  }
  return absl::OkStatus();
}

absl::Status Landings::ask(Segment& segment) {
  if (segment.is_asked) return absl::OkStatus();
  const uint32_t left = segment.length - segment.done;
  ibv_sge into = slots_.part(slots_.bounce(), std::min(Slots::kBounce, left));
  if (!segment.is_bounced) {
    into = {
        .addr = reinterpret_cast<uintptr_t>(segment.place), .length = left, .lkey = segment.key};
  }
  absl::Status status =
      pair_.read(read_id_, into, segment.from.address + segment.done, segment.from.key);
  if (!status.ok()) return status;
  segment.is_asked = true;
  ++asked_;
  return absl::OkStatus();
}

uint32_t Landings::on_read() {
  const auto oldest = std::find_if(segments_.begin(), segments_.end(),
                                   [](const Segment& segment) { return segment.is_asked; });
  if (oldest == segments_.end()) return 0;
  oldest->is_asked = false;
  --asked_;
  const uint32_t left = oldest->length - oldest->done;
  const uint32_t bytes = oldest->is_bounced ? std::min(Slots::kBounce, left) : left;
  if (!oldest->is_bounced || oldest->place == nullptr) {
    oldest->done = oldest->length;
  } else {
    take_copy(*oldest, absl::MakeConstSpan(slots_.bounce(), bytes));
  }
  return bytes;
}

bool Landings::drop(size_t nth) {
  Segment& segment = segments_[nth];
  if (segment.is_asked && !segment.is_bounced) return false;
  release(segment);
  segment.place = nullptr;
  if (!segment.is_copied && !segment.is_asked) segment.done = segment.length;
  return true;
}

bool Landings::take_complete() {
  if (segments_.empty() || !segments_.front().is_complete()) return false;
  release(segments_.front());
  segments_.pop_front();
  return true;
}

void Landings::release(Segment& segment) noexcept {
  if (segment.is_held) adapter_.memory().release(segment.place, segment.length);
  segment.is_held = false;
}

void Landings::release_all() noexcept {
  for (Segment& segment : segments_) release(segment);
}

}  // namespace nezha::rdma
