// SPDX-License-Identifier: Apache-2.0
#include "flare_offload/core/slot_table.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "absl/strings/str_cat.h"

namespace nezha::flare {
namespace {

constexpr size_t kCacheLine = 64;

size_t buffer_bytes(const SlotTableOptions& options) {
  return (options.payload + kCacheLine - 1) / kCacheLine * kCacheLine;
}

int buffers_per_slot(const SlotTableOptions& options) {
  return options.reproducible ? TreeShape::buffers(static_cast<int>(options.children.size()))
                              : options.buffers;
}

uint64_t lowest_bits(size_t count) {
  return count == 64 ? ~uint64_t{0} : (uint64_t{1} << count) - 1;
}

}  // namespace

absl::Status check(const SlotTableOptions& options) {
  if (!std::has_single_bit(options.window) || options.window > kMaxWindow) {
    return absl::InvalidArgumentError(absl::StrCat("the window has ", options.window,
                                                   " blocks; it must be a power of two up to ",
                                                   kMaxWindow));
  }
  if (options.children.empty() || options.children.size() > kMaxChildren) {
    return absl::InvalidArgumentError(absl::StrCat("the switch has ", options.children.size(),
                                                   " children; it must have 1 to ", kMaxChildren));
  }
  if (options.payload == 0 || options.payload > kMaxPayload || options.payload % 8 != 0) {
    return absl::InvalidArgumentError(absl::StrCat("the payload has ", options.payload,
                                                   " bytes; it must be a multiple of 8 up to ",
                                                   kMaxPayload));
  }
  if (options.buffers < 1 || static_cast<size_t>(options.buffers) > options.children.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("each block has ", options.buffers,
                     " buffers; it must have from 1 to as many as the switch has children"));
  }
  return absl::OkStatus();
}

size_t SlotTable::buffers_size(const SlotTableOptions& options) {
  return size_t{2} * options.window * static_cast<size_t>(buffers_per_slot(options)) *
         buffer_bytes(options);
}

size_t SlotTable::memory_of(const SlotTableOptions& options) {
  const int children = static_cast<int>(options.children.size());
  const size_t aggregation = options.reproducible  ? TreeAggregation::size(TreeShape(children))
                             : options.buffers > 1 ? sizeof(MultiBuffer)
                                                   : sizeof(SingleBuffer);
  return buffers_size(options) + size_t{2} * options.window * (sizeof(Slot) + aggregation) +
         size_t{2} * SentLog::size(options.window) * sizeof(uint32_t) +
         options.children.size() * sizeof(GapFinder);
}

SlotTable::SlotTable(const SlotTableOptions& options, Outlet* outlet)
    : options_(options),
      all_(lowest_bits(options.children.size())),
      outlet_(outlet),
      shape_(static_cast<int>(options.children.size())),
      memory_(buffers_size(options)),
      slots_(size_t{2} * options.window),
      results_(options.window),
      partials_(options.window),
      from_children_(options.children.size()) {
  const int buffers = buffers_per_slot(options_);
  const size_t bytes = buffer_bytes(options_);
  const auto count = static_cast<uint32_t>(slots_.size());
  for (uint32_t i = 0; i < count; ++i) {
    const uint32_t seq = options_.first_seq + i;
    Slot& slot = slot_of(seq);
    slot.block.seq = seq - count;
    std::byte* memory = memory_.data() + i * static_cast<size_t>(buffers) * bytes;
    slot.aggregation = make_aggregation(options_, shape_, memory);
  }
}

std::unique_ptr<Aggregation> SlotTable::make_aggregation(const SlotTableOptions& options,
                                                         const TreeShape& shape,
                                                         std::byte* memory) {
  const size_t bytes = buffer_bytes(options);
  if (options.reproducible) return std::make_unique<TreeAggregation>(shape, memory, bytes);
  if (options.buffers == 1) return std::make_unique<SingleBuffer>(memory);
  return std::make_unique<MultiBuffer>(options.buffers, memory, bytes);
}

void SlotTable::from_child(int child, const Frame& frame) {
  if (frame.header.is_down) {
    ++counters_.violations;
    return;
  }
  const BlockId& block = frame.header.block;
  const NumberRange lost = from_children_[static_cast<size_t>(child)].on_frame(frame.header);
  if (lost.count > 0) {
    counters_.lost += lost.count;
    outlet_->to_child(child, header_to_children(FrameType::kLost, block), encode_lost(lost));
  }
  switch (frame.header.type) {
    case FrameType::kContribution:
      contribute(child, frame);
      return;
    case FrameType::kLost:
      resend_results(child, decode_lost(frame.payload));
      return;
    case FrameType::kMismatch:
      on_mismatch(frame);
      return;
    case FrameType::kResult:
    case FrameType::kPending:
      break;
  }
  ++counters_.violations;
}

void SlotTable::contribute(int child, const Frame& frame) {
  const BlockId& block = frame.header.block;
  const size_t length = frame.payload.size();
  if (length > options_.payload) {
    ++counters_.violations;
    return;
  }
  Slot& slot = slot_of(block.seq);
  if (!is_due(slot, block.seq)) return;
  if (slot.block.seq != block.seq) open(slot, block, length);
  const uint64_t bit = uint64_t{1} << child;
  if (slot.mismatch.has_value()) {
    answer_duplicate(slot, child);
  } else if (slot.block != block || slot.length != length) {
    if (slot.phase == Phase::kDone) {  // all have contributed, this child too, and something else
      ++counters_.violations;
      return;
    }
    const auto first = static_cast<size_t>(std::countr_zero(slot.arrived));
    spoil(slot, {.length = slot.length,
                 .ranks = options_.children[first],
                 .other = block,
                 .other_length = length,
                 .other_ranks = options_.children[static_cast<size_t>(child)]});
  } else if ((slot.arrived & bit) != 0) {
    ++counters_.duplicates;
    answer_duplicate(slot, child);
  } else {
    slot.arrived |= bit;
    slot.aggregation->add(child, frame.payload.data());
    ++counters_.combined;
    if (slot.arrived == all_) complete(slot);
  }
}

void SlotTable::from_parent(const Frame& frame) {
  if (options_.is_root || !frame.header.is_down) {
    ++counters_.violations;
    return;
  }
  const BlockId& block = frame.header.block;
  const NumberRange lost = from_parent_.on_frame(frame.header);
  if (lost.count > 0) {
    counters_.lost += lost.count;
    outlet_->to_parent(header_to_parent(FrameType::kLost, block), encode_lost(lost));
  }
  if (frame.header.type == FrameType::kLost) {
    resend_partials(decode_lost(frame.payload));
    return;
  }
  if (frame.header.type == FrameType::kMismatch) {
    on_mismatch(frame);
    return;
  }
  Slot& slot = slot_of(block.seq);
  if (slot.phase != Phase::kUp || slot.block.seq != block.seq || slot.mismatch.has_value()) {
    ++counters_.stale;
    return;
  }
  if (frame.header.type == FrameType::kPending) {
    outlet_->to_children(header_to_children(FrameType::kPending, block), frame.payload);
  } else if (frame.header.type == FrameType::kResult && slot.block == block &&
             slot.length == frame.payload.size()) {
    if (slot.length > 0) {
      std::memcpy(slot.aggregation->total(), frame.payload.data(), slot.length);
    }
    finish(slot);
  } else {
    ++counters_.violations;
  }
}

bool SlotTable::is_due(const Slot& slot, uint32_t seq) {
  const uint32_t ahead = seq - slot.block.seq;  // modulo 2^32
  if (ahead == 0 && slot.phase != Phase::kUnused) return true;
  const bool is_reusable = slot.phase == Phase::kUnused || slot.phase == Phase::kDone;
  if (ahead == slots_.size() && is_reusable) return true;
  const bool is_old = ahead == 0 || ahead > uint32_t{1} << 31;
  ++(is_old ? counters_.stale : counters_.violations);
  return false;
}

void SlotTable::open(Slot& slot, const BlockId& block, size_t length) {
  slot.phase = Phase::kFilling;
  slot.block = block;
  slot.length = length;
  slot.arrived = 0;
  slot.mismatch.reset();
  slot.aggregation->begin(reduction(block.type, block.operation), length / sizeOf(block.type),
                          length);
}

void SlotTable::answer_duplicate(const Slot& slot, int child) {
  if (slot.mismatch.has_value()) {
    const std::vector<std::byte> payload = encode_mismatch(*slot.mismatch);
    outlet_->to_child(child, header_to_children(FrameType::kMismatch, slot.block), payload);
    if (!options_.is_root) {
      outlet_->to_parent(header_to_parent(FrameType::kMismatch, slot.block), payload);
    }
  } else if (slot.phase == Phase::kDone) {
    resend_result(slot, child);
  } else if (slot.phase == Phase::kUp) {
    resend_partial(slot);
  } else {
    ++counters_.pendings;
    outlet_->to_child(child, header_to_children(FrameType::kPending, slot.block),
                      missing_ranks(slot));
  }
}

void SlotTable::complete(Slot& slot) {
  if (options_.is_root) {
    finish(slot);
  } else {
    slot.phase = Phase::kUp;
    send_partial(slot);
  }
}

void SlotTable::finish(Slot& slot) {
  slot.phase = Phase::kDone;
  ++counters_.blocks;
  FrameHeader header = header_to_children(FrameType::kResult, slot.block);
  header.is_numbered = true;
  results_.add(slot.block.seq);
  outlet_->to_children(header, total(slot));
}

void SlotTable::spoil(Slot& slot, const Mismatch& mismatch) {
  ++counters_.mismatches;
  slot.mismatch = mismatch;
  const std::vector<std::byte> payload = encode_mismatch(mismatch);
  outlet_->to_children(header_to_children(FrameType::kMismatch, slot.block), payload);
  if (!options_.is_root) {
    outlet_->to_parent(header_to_parent(FrameType::kMismatch, slot.block), payload);
  }
}

void SlotTable::on_mismatch(const Frame& frame) {
  const BlockId& block = frame.header.block;
  const Mismatch mismatch = decode_mismatch(frame);
  Slot& slot = slot_of(block.seq);
  if (!is_due(slot, block.seq)) return;
  if (slot.block.seq != block.seq) open(slot, block, std::min(mismatch.length, options_.payload));
  if (slot.phase != Phase::kDone && !slot.mismatch.has_value()) spoil(slot, mismatch);
}

void SlotTable::resend_results(int child, const NumberRange& numbers) {
  for (uint16_t i = 0; i < std::min(numbers.count, kMaxLost); ++i) {
    const auto seq = results_.seq_of(static_cast<uint16_t>(numbers.first + i));
    if (!seq) continue;
    const Slot& slot = slot_of(*seq);
    if (slot.block.seq == *seq && slot.phase == Phase::kDone) resend_result(slot, child);
  }
}

void SlotTable::resend_partials(const NumberRange& numbers) {
  for (uint16_t i = 0; i < std::min(numbers.count, kMaxLost); ++i) {
    const auto seq = partials_.seq_of(static_cast<uint16_t>(numbers.first + i));
    if (!seq) continue;
    const Slot& slot = slot_of(*seq);
    if (slot.block.seq == *seq && slot.phase == Phase::kUp) resend_partial(slot);
  }
}

FrameHeader SlotTable::header_to_children(FrameType type, const BlockId& block) const {
  return {.type = type, .is_down = true, .number = results_.next(), .block = block};
}

FrameHeader SlotTable::header_to_parent(FrameType type, const BlockId& block) const {
  return {.type = type, .number = partials_.next(), .block = block};
}

void SlotTable::resend_result(const Slot& slot, int child) {
  ++counters_.resent;
  outlet_->to_child(child, header_to_children(FrameType::kResult, slot.block), total(slot));
}

void SlotTable::send_partial(const Slot& slot) {
  FrameHeader header = header_to_parent(FrameType::kContribution, slot.block);
  header.is_numbered = true;
  partials_.add(slot.block.seq);
  outlet_->to_parent(header, total(slot));
}

void SlotTable::resend_partial(const Slot& slot) {
  ++counters_.resent;
  send_partial(slot);
}

absl::Span<const std::byte> SlotTable::total(const Slot& slot) const {
  return {slot.aggregation->total(), slot.length};
}

std::vector<std::byte> SlotTable::missing_ranks(const Slot& slot) const {
  std::vector<RankRange> ranges;
  for (size_t child = 0; child < options_.children.size(); ++child) {
    if ((slot.arrived >> child & 1) == 0) ranges.push_back(options_.children[child]);
  }
  return encode_ranges(ranges);
}

}  // namespace nezha::flare
