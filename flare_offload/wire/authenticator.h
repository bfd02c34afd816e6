// The tags that frames carry: HMAC-SHA-256 (RFC 2104, FIPS 180-4), cut to 96 bits, which RFC 2104,
// section 5, allows for.
//
// A key is what one switch, its children and nobody else have for one installation of a session: a
// switch that starts again needs a new one, for it knows nothing of what was sent before. Whoever
// lacks the key can neither join in nor replay what another installation, or another switch of the
// tree, has sent. What the same installation sent before, a slot table (core/slot_table.h) drops or
// answers, but only until sequence numbers come around: a session must be installed anew, with a
// new key, before its 2^31st block.
#pragma once

#include <array>
#include <cstddef>
#include <memory>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

struct evp_mac_ctx_st;

namespace nezha::flare {

constexpr size_t kTagOffset = 20;  // in a datagram (frame.h)
constexpr size_t kTagSize = 12;
constexpr size_t kKeySize = 32;  // bytes

using Key = std::array<std::byte, kKeySize>;

// 64 hex digits. An error does not repeat the text.
absl::StatusOr<Key> parse_key(absl::string_view hex);

// Not thread-safe: signing is a computation in steps.
class Authenticator {
 public:
  explicit Authenticator(const Key& key);

  // Writes the tag of a datagram of at least kTagOffset + kTagSize bytes into it.
  void sign(absl::Span<std::byte> datagram);
  // Whether the tag in such a datagram is the right one; takes as long if it is not.
  bool verify(absl::Span<const std::byte> datagram);

 private:
  using Tag = std::array<std::byte, kTagSize>;
  Tag tag_of(absl::Span<const std::byte> datagram);

  struct Free {
    void operator()(evp_mac_ctx_st* context) const;
  };
  std::unique_ptr<evp_mac_ctx_st, Free> context_;
};

}  // namespace nezha::flare
