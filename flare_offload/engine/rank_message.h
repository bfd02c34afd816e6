// SPDX-License-Identifier: Apache-2.0
// The messages about their session that the ranks of a context exchange, over message streams
// between rank 0 and each other rank. The first byte is the kind; fields are as in common/fields.h.
#pragma once

#include <cstdint>
#include <string>
#include <variant>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace nezha::flare::rank_message {

// Rank 0 tells a rank to ask the manager for a session, by this attempt.
struct Join {
  uint32_t attempt = 0;
};
// A rank tells rank 0 how the attempt ended. `why` is empty if the rank has the session.
struct Joined {
  uint32_t attempt = 0;
  std::string why;
};
// Rank 0 tells a rank that all ranks have the session (Up), or that not all have it and the rank is
// to give it back (Down).
struct Up {
  uint32_t attempt = 0;
};
struct Down {
  uint32_t attempt = 0;
};
// Rank 0 tells a rank that the operation's blocks are the stream's next ones.
struct Order {
  uint32_t attempt = 0;
  uint32_t stream = 0;
  uint32_t tag = 0;
  uint64_t ordinal = 0;
};
// Rank 0 tells a rank that from that operation on the stream carries all of the tag's operations
// that have no order, one after the other, and nothing else.
struct Keep {
  uint32_t attempt = 0;
  uint32_t stream = 0;
  uint32_t tag = 0;
  uint64_t ordinal = 0;
};
// A rank tells rank 0 that the operation has begun there and waits for its order.
struct Started {
  uint32_t attempt = 0;
  uint32_t tag = 0;
  uint64_t ordinal = 0;
};

using Message = std::variant<Join, Joined, Up, Down, Order, Keep, Started>;

std::string encode(const Message& message);
absl::StatusOr<Message> decode(absl::string_view bytes);

}  // namespace nezha::flare::rank_message
