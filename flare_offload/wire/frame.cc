#include "flare_offload/wire/frame.h"

#include <algorithm>

#include "common/fields.h"

namespace nezha::flare {
namespace {

constexpr size_t kRangeSize = 4;
constexpr size_t kLengthSize = 4;

constexpr uint8_t halves(unsigned upper, unsigned lower) {
  return static_cast<uint8_t>((upper << 4) | lower);
}

bool is_reduced_by_switches(ReduceOperation operation) {
  return operation >= ReduceOperation::kSum && operation <= ReduceOperation::kMax;
}

bool fits(const FrameHeader& header, size_t payload) {
  switch (header.type) {
    case FrameType::kContribution:
    case FrameType::kResult:
      return payload % size_of(header.block.type) == 0;
    case FrameType::kPending:
      return payload % kRangeSize == 0 && payload <= kMaxChildren * kRangeSize;
    case FrameType::kMismatch:
      return payload == kLengthSize;
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
      .put(halves(static_cast<uint8_t>(block.type), static_cast<uint8_t>(block.operation)))
      .put(header.child)
      .put(uint8_t{0})
      .put(header.session)
      .put(header.generation)
      .put(uint16_t{0})
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
  reader.get<uint8_t>();
  header.session = reader.get<uint32_t>();
  header.generation = reader.get<uint16_t>();
  reader.get<uint16_t>();
  header.type = static_cast<FrameType>(version_and_type & 15);
  header.block = {.seq = reader.get<uint32_t>(),
                  .operation_id = reader.get<uint32_t>(),
                  .type = static_cast<DataType>(types >> 4),
                  .operation = static_cast<ReduceOperation>(types & 15)};
  if (version_and_type >> 4 != kVersion || header.child >= kMaxChildren) return {};
  if (size_of(header.block.type) == 0 || !is_reduced_by_switches(header.block.operation)) return {};
  const absl::Span<const std::byte> payload = datagram.subspan(kHeaderSize);
  if (!fits(header, payload.size())) return {};
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

std::vector<std::byte> encode_length(size_t length) {
  std::vector<std::byte> payload(kLengthSize);
  FieldWriter(payload.data()).put(static_cast<uint32_t>(length));
  return payload;
}

size_t decode_length(absl::Span<const std::byte> payload) {
  return FieldReader(payload.data()).get<uint32_t>();
}

}  // namespace nezha::flare
