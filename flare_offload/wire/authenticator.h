// SPDX-License-Identifier: Apache-2.0
// The tags that frames carry: AES-128(second half of the key, GMAC(first half, nonce 0, frame)),
// cut to 96 bits.
//
// The tag composes a keyed hash function that has few collisions, GMAC's GHASH (NIST SP 800-38D),
// with a pseudo-random function (M. Wegman and L. Carter: New hash functions and their use in
// authentication and set equality, 1981; D. Boneh and V. Shoup: A Graduate Course in Applied
// Cryptography, chapter 7). It needs no nonces: GMAC by itself reveals its key when a nonce
// repeats, as one would after any sender's restart, but here nobody sees GMAC's output. Two of q
// frames of n bytes collide with a probability below q^2 n / 2^132: a session of 2^31 blocks with
// 64 children sends fewer than 2^40 frames, so 2^-39 at kMaxPayload. HMAC-SHA-256
// takes more than twice as long (docs/performance.md).
//
// A key belongs to one switch and its children, for one installation of a session. A switch that
// restarts needs a new key, because it has forgotten what was sent before. Whoever lacks the key
// can neither take part nor replay frames of another installation or of another switch of the tree.
// A slot table (core/slot_table.h) drops or answers frames that the same installation sent before,
// but only until sequence numbers wrap: a session must be installed anew, with a new key, before
// its 2^31st block.
#pragma once

#include <array>
#include <cstddef>
#include <memory>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

struct evp_cipher_ctx_st;
struct gcm128_context;

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
  // Whether the tag in such a datagram is right. Takes the same time if it is wrong.
  bool verify(absl::Span<const std::byte> datagram);

 private:
  using Tag = std::array<std::byte, kTagSize>;
  Tag tag_of(absl::Span<const std::byte> datagram);

  struct Free {
    void operator()(evp_cipher_ctx_st* context) const;
    void operator()(gcm128_context* context) const;
  };
  using Cipher = std::unique_ptr<evp_cipher_ctx_st, Free>;
  static Cipher make_cipher(const std::byte* key);

  Cipher hash_cipher_;
  std::unique_ptr<gcm128_context, Free> hash_;  // uses hash_cipher_
  Cipher cipher_;
};

}  // namespace nezha::flare
