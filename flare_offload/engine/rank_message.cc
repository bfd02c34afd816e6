// SPDX-License-Identifier: Apache-2.0
#include "flare_offload/engine/rank_message.h"

#include <cstddef>

#include "common/fields.h"

namespace nezha::flare::rank_message {
namespace {

constexpr size_t kMaxReason = 1024;  // bytes

// The bytes after each kind, in the order of the variant, without a reason's bytes.
constexpr size_t kSizes[] = {4, 4, 4, 4, 20, 20, 16};

std::string with_kind(size_t kind) {
  std::string bytes(1 + kSizes[kind], '\0');
  bytes[0] = static_cast<char>(kind);
  return bytes;
}

struct Encoder {
  FieldWriter out;

  void operator()(const Join& m) { out.put(m.attempt); }
  void operator()(const Joined& m) { out.put(m.attempt); }
  void operator()(const Up& m) { out.put(m.attempt); }
  void operator()(const Down& m) { out.put(m.attempt); }
  void operator()(const Order& m) { out.put(m.attempt).put(m.stream).put(m.tag).put(m.ordinal); }
  void operator()(const Keep& m) { out.put(m.attempt).put(m.stream).put(m.tag).put(m.ordinal); }
  void operator()(const Started& m) { out.put(m.attempt).put(m.tag).put(m.ordinal); }
};

}  // namespace

std::string encode(const Message& message) {
  std::string bytes = with_kind(message.index());
  std::visit(Encoder{FieldWriter(reinterpret_cast<std::byte*>(bytes.data()) + 1)}, message);
  if (const auto* joined = std::get_if<Joined>(&message)) {
    bytes += joined->why.substr(0, kMaxReason);
  }
  return bytes;
}

absl::StatusOr<Message> decode(absl::string_view bytes) {
  const size_t kind = bytes.empty() ? std::size(kSizes) : static_cast<uint8_t>(bytes[0]);
  const bool has_reason = kind == 1;
  if (kind >= std::size(kSizes) || bytes.size() < 1 + kSizes[kind] ||
      (bytes.size() > 1 + kSizes[kind] && !has_reason)) {
    return absl::InvalidArgumentError("it sent a malformed message about a session");
  }
  FieldReader in(reinterpret_cast<const std::byte*>(bytes.data()) + 1);
  const auto attempt = in.get<uint32_t>();
  switch (kind) {
    case 0:
      return Join{attempt};
    case 1:
      return Joined{attempt, std::string(bytes.substr(1 + kSizes[kind]))};
    case 2:
      return Up{attempt};
    case 3:
      return Down{attempt};
    case 4: {
      const auto stream = in.get<uint32_t>();
      const auto tag = in.get<uint32_t>();
      return Order{attempt, stream, tag, in.get<uint64_t>()};
    }
    case 5: {
      const auto stream = in.get<uint32_t>();
      const auto tag = in.get<uint32_t>();
      return Keep{attempt, stream, tag, in.get<uint64_t>()};
    }
    default: {
      const auto tag = in.get<uint32_t>();
      return Started{attempt, tag, in.get<uint64_t>()};
    }
  }
}

}  // namespace nezha::flare::rank_message
