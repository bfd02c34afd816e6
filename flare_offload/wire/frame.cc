// SPDX-License-Identifier: Apache-2.0
#include "flare_offload/wire/frame.h"

#include <algorithm>

#include "common/fields.h"

namespace nezha::flare {
namespace {

constexpr size_t kRangeSize = 4;
constexpr size_t kMismatchSize = 24;
constexpr size_t kNumbersSize = 4;
constexpr unsigned kNumbered = 1;  // bits of the flags
constexpr unsigned kDown = 2;

constexpr uint8_t halves(unsigned upper, unsigned lower) {
  return static_cast<uint8_t>((upper << 4) | lower);
}

bool is_reduced_by_switches(ReduceOperation operation) {
  return operation >= ReduceOperation::kSum && operation <= ReduceOperation::kMax;
}

uint8_t types_of(const BlockId& block) {
  return halves(static_cast<uint8_t>(block.type), static_cast<uint8_t>(block.operation));
}

// Reads the type and operation from that byte. Returns false if there are no such, or if no switch
// reduces them.
bool read_types(uint8_t types, BlockId& block) {
  block.type = static_cast<DataType>(types >> 4);
  block.operation = static_cast<ReduceOperation>(types & 15);
  return sizeOf(block.type) != 0 && is_reduced_by_switches(block.operation);
}

constexpr size_t kOtherTypes = 20;  // their offset in a mismatch's payload

bool fits(const FrameHeader& header, absl::Span<const std::byte> bytes) {
  const size_t payload = bytes.size();
  switch (header.type) {
    case FrameType::kContribution:
    case FrameType::kResult:
      return payload % sizeOf(header.block.type) == 0;
    case FrameType::kPending:
      return payload % kRangeSize == 0 && payload <= kMaxChildren * kRangeSize;
    case FrameType::kMismatch: {
      BlockId other;
      return payload == kMismatchSize &&
             read_types(std::to_integer<uint8_t>(bytes[kOtherTypes]), other);
    }
    case FrameType::kLost:
      return payload == kNumbersSize;
  }
  return false;
}

}  // namespace

size_t payload_for(size_t mtu, bool ipv6) {
  constexpr size_t kUdp = 8;
  constexpr size_t kWidest = 8;  // bytes of an element
  const size_t headers = (ipv6 ? 40 : 20) + kUdp + kHeaderSize;
  if (mtu < headers) return 0;
  return std::min(kMaxPayload, (mtu - headers) / kWidest * kWidest);
}

size_t encode(const FrameHeader& header, absl::Span<const std::byte> payload,
              Authenticator& authenticator, std::byte* out) {
  const BlockId& block = header.block;
  FieldWriter(out)
      .put(halves(kVersion, static_cast<uint8_t>(header.type)))
      .put(types_of(block))
      .put(header.child)
      .put(
          static_cast<uint8_t>((header.is_numbered ? kNumbered : 0) | (header.is_down ? kDown : 0)))
      .put(header.session)
      .put(header.generation)
      .put(header.number)
      .put(block.seq)
      .put(block.operation_id);
  std::copy(payload.begin(), payload.end(), out + kHeaderSize);
  const size_t size = kHeaderSize + payload.size();
  authenticator.sign({out, size});
  return size;
}

std::optional<Frame> decode(absl::Span<const std::byte> datagram) {
  if (datagram.size() < kHeaderSize || datagram.size() > kMaxDatagram) return {};
  FieldReader reader(datagram.data());
  FrameHeader header;
  const auto version_and_type = reader.get<uint8_t>();
  const auto types = reader.get<uint8_t>();
  header.child = reader.get<uint8_t>();
  const auto flags = reader.get<uint8_t>();
  header.is_numbered = (flags & kNumbered) != 0;
  header.is_down = (flags & kDown) != 0;
  header.session = reader.get<uint32_t>();
  header.generation = reader.get<uint16_t>();
  header.number = reader.get<uint16_t>();
  header.type = static_cast<FrameType>(version_and_type & 15);
  header.block.seq = reader.get<uint32_t>();
  header.block.operation_id = reader.get<uint32_t>();
  if (version_and_type >> 4 != kVersion || header.child >= kMaxChildren) return {};
  if (!read_types(types, header.block)) return {};
  const absl::Span<const std::byte> payload = datagram.subspan(kHeaderSize);
  if (!fits(header, payload)) return {};
  return Frame{header, payload};
}

std::vector<std::byte> encode_ranges(absl::Span<const RankRange> ranges) {
  std::vector<std::byte> payload(ranges.size() * kRangeSize);
  FieldWriter writer(payload.data());
  for (const RankRange& range : ranges) writer.put(range.first).put(range.count);
  return payload;
}

std::vector<RankRange> decode_ranges(absl::Span<const std::byte> payload) {
  std::vector<RankRange> ranges(payload.size() / kRangeSize);
  FieldReader reader(payload.data());
  for (RankRange& range : ranges) {
    range.first = reader.get<uint16_t>();
    range.count = reader.get<uint16_t>();
  }
  return ranges;
}

std::vector<std::byte> encode_mismatch(const Mismatch& mismatch) {
  std::vector<std::byte> payload(kMismatchSize);
  FieldWriter(payload.data())
      .put(static_cast<uint32_t>(mismatch.length))
      .put(mismatch.ranks.first)
      .put(mismatch.ranks.count)
      .put(static_cast<uint32_t>(mismatch.other_length))
      .put(mismatch.other_ranks.first)
      .put(mismatch.other_ranks.count)
      .put(mismatch.other.operation_id)
      .put(types_of(mismatch.other));
  return payload;
}

Mismatch decode_mismatch(const Frame& frame) {
  FieldReader reader(frame.payload.data());
  Mismatch mismatch;
  mismatch.length = reader.get<uint32_t>();
  mismatch.ranks.first = reader.get<uint16_t>();
  mismatch.ranks.count = reader.get<uint16_t>();
  mismatch.other_length = reader.get<uint32_t>();
  mismatch.other_ranks.first = reader.get<uint16_t>();
  mismatch.other_ranks.count = reader.get<uint16_t>();
  mismatch.other.seq = frame.header.block.seq;
  mismatch.other.operation_id = reader.get<uint32_t>();
  read_types(reader.get<uint8_t>(), mismatch.other);
  return mismatch;
}

std::vector<std::byte> encode_lost(const NumberRange& numbers) {
  std::vector<std::byte> payload(kNumbersSize);
  FieldWriter(payload.data()).put(numbers.first).put(numbers.count);
  return payload;
}

NumberRange decode_lost(absl::Span<const std::byte> payload) {
  FieldReader reader(payload.data());
  NumberRange numbers;
  numbers.first = reader.get<uint16_t>();
  numbers.count = reader.get<uint16_t>();
  return numbers;
}

}  // namespace nezha::flare
