// SPDX-License-Identifier: Apache-2.0
// What the ranks of a context tell each other about their session, over message streams between
// rank 0 and each other one. Fields as in common/fields.h; the first byte is the kind.
#pragma once

#include <cstdint>
#include <string>
#include <variant>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace nezha::flare::rank_message {

// From rank 0: ask the manager for a session, by this attempt.
struct Join {
  uint32_t attempt = 0;
};
// To rank 0: how that ended. `why` is empty: it is there.
struct Joined {
  uint32_t attempt = 0;
  std::string why;
};
// From rank 0: all ranks have it. Or: give it back, for not all have.
struct Up {
  uint32_t attempt = 0;
};
struct Down {
  uint32_t attempt = 0;
};
// From rank 0: the operation's blocks are the stream's next ones.
struct Order {
  uint32_t attempt = 0;
  uint32_t stream = 0;
  uint32_t tag = 0;
  uint64_t ordinal = 0;
};
// From rank 0: from that one on, all of the tag's operations that have no order are the stream's,
// one after the other, and nothing else is.
struct Keep {
  uint32_t attempt = 0;
  uint32_t stream = 0;
  uint32_t tag = 0;
  uint64_t ordinal = 0;
};
// To rank 0: the operation has begun here, and waits for its order.
struct Started {
  uint32_t attempt = 0;
  uint32_t tag = 0;
  uint64_t ordinal = 0;
};

using Message = std::variant<Join, Joined, Up, Down, Order, Keep, Started>;

std::string encode(const Message& message);
absl::StatusOr<Message> decode(absl::string_view bytes);

}  // namespace nezha::flare::rank_message
