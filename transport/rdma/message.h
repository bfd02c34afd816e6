// SPDX-License-Identifier: Apache-2.0
// The format of the messages of a link over RDMA. All of it is in this file, except for the frames
// that messages carry, which are those of transport/wire.h.
//
// A message is one SEND, and takes one of the receives that the peer has posted. It begins with a
// prefix of 8 bytes: how many receives its sender has posted again since the link began (u32), and
// what follows (u8, and 3 reserved bytes):
//
//   kFrame      a frame, complete; or a segment whose payload goes on in the messages that follow
//   kElsewhere  the header of a segment, and where its payload is: address (u64), key (u32) and a
//               reserved u32. The receiver reads the payload by RDMA, and acknowledges the segment
//               once it has the payload
//   kMore       more payload of the segment that was sent last
#pragma once

#include <cstddef>
#include <cstdint>

#include "common/fields.h"
#include "transport/wire.h"

namespace nezha::rdma {

enum class Content : uint8_t { kFrame = 0, kElsewhere = 1, kMore = 2 };

struct Prefix {
  uint32_t freed = 0;
  Content content = Content::kFrame;
};

struct Elsewhere {
  uint64_t address = 0;
  uint32_t key = 0;
};

constexpr size_t kPrefixSize = 8;
constexpr size_t kElsewhereSize = 16;
constexpr size_t kSegmentHead = kPrefixSize + wire::kFrameHeaderSize + wire::kDataHeaderSize;

inline void encode(const Prefix& prefix, std::byte* out) {
  FieldWriter(out)
      .put(prefix.freed)
      .put(static_cast<uint8_t>(prefix.content))
      .put(uint8_t{0})
      .put(uint16_t{0});
}
inline void encode(const Elsewhere& elsewhere, std::byte* out) {
  FieldWriter(out).put(elsewhere.address).put(elsewhere.key).put(uint32_t{0});
}
// The caller guarantees that the bytes are there, and checks the content.
inline Prefix decode_prefix(const std::byte* bytes) {
  FieldReader reader(bytes);
  Prefix prefix;
  prefix.freed = reader.get<uint32_t>();
  prefix.content = static_cast<Content>(reader.get<uint8_t>());
  return prefix;
}
inline Elsewhere decode_elsewhere(const std::byte* bytes) {
  FieldReader reader(bytes);
  Elsewhere elsewhere;
  elsewhere.address = reader.get<uint64_t>();
  elsewhere.key = reader.get<uint32_t>();
  return elsewhere;
}

}  // namespace nezha::rdma
