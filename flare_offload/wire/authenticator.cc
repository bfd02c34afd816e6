// SPDX-License-Identifier: Apache-2.0
#include "flare_offload/wire/authenticator.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/modes.h>

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <stdexcept>

#include "absl/strings/ascii.h"

namespace nezha::flare {
namespace {

constexpr size_t kHalf = kKeySize / 2;
constexpr size_t kBlock = 16;  // bytes of an AES block
constexpr unsigned char kNonce[12] = {};

// Throws unless a call of OpenSSL has succeeded. Such calls fail only without memory, or where
// OpenSSL's configuration forbids AES-128.
void require(bool done) {
  if (!done) throw std::runtime_error("OpenSSL cannot compute AES-128's GMAC");
}

void encrypt(EVP_CIPHER_CTX* cipher, const unsigned char in[kBlock], unsigned char out[kBlock]) {
  int written = 0;
  require(EVP_EncryptUpdate(cipher, out, &written, in, kBlock) == 1);
}

// Encrypts a block; GCM calls this as its block cipher. Nothing may be thrown through C.
void encrypt_for_gcm(const unsigned char in[kBlock], unsigned char out[kBlock],
                     const void* key) noexcept {
  encrypt(static_cast<EVP_CIPHER_CTX*>(const_cast<void*>(key)), in, out);
}

const unsigned char* bytes_of(const std::byte* data) {
  return reinterpret_cast<const unsigned char*>(data);
}

}  // namespace

absl::StatusOr<Key> parse_key(absl::string_view hex) {
  if (hex.size() != 2 * kKeySize || !std::all_of(hex.begin(), hex.end(), absl::ascii_isxdigit)) {
    return absl::InvalidArgumentError("a key has 64 hex digits");
  }
  Key key{};
  for (size_t i = 0; i < key.size(); ++i) {
    const char* const digits = hex.data() + 2 * i;
    uint8_t byte = 0;
    std::from_chars(digits, digits + 2, byte, 16);
    key[i] = std::byte{byte};
  }
  return key;
}

void Authenticator::Free::operator()(evp_cipher_ctx_st* context) const {
  EVP_CIPHER_CTX_free(context);
}

void Authenticator::Free::operator()(gcm128_context* context) const {
  CRYPTO_gcm128_release(context);
}

Authenticator::Cipher Authenticator::make_cipher(const std::byte* key) {
  Cipher cipher(EVP_CIPHER_CTX_new());
  EVP_CIPHER* fetched = EVP_CIPHER_fetch(nullptr, "AES-128-ECB", nullptr);
  const bool done =
      cipher != nullptr && fetched != nullptr &&
      EVP_EncryptInit_ex2(cipher.get(), fetched, bytes_of(key), nullptr, nullptr) == 1;
  EVP_CIPHER_free(fetched);  // the context holds its own reference
  require(done);
  return cipher;
}

// Uses OpenSSL's modes interface to GCM: EVP looks parameters up by name for each message, which
// takes longer than hashing 1 KB.
Authenticator::Authenticator(const Key& key)
    : hash_cipher_(make_cipher(key.data())),
      hash_(CRYPTO_gcm128_new(hash_cipher_.get(), encrypt_for_gcm)),
      cipher_(make_cipher(key.data() + kHalf)) {
  require(hash_ != nullptr);
}

Authenticator::Tag Authenticator::tag_of(absl::Span<const std::byte> datagram) {
  const auto absorb = [&](absl::Span<const std::byte> part) {
    require(CRYPTO_gcm128_aad(hash_.get(), bytes_of(part.data()), part.size()) == 0);
  };
  std::array<unsigned char, kBlock> digest{};
  CRYPTO_gcm128_setiv(hash_.get(), kNonce, sizeof kNonce);
  absorb(datagram.first(kTagOffset));
  absorb(datagram.subspan(kTagOffset + kTagSize));
  CRYPTO_gcm128_tag(hash_.get(), digest.data(), digest.size());
  encrypt(cipher_.get(), digest.data(), digest.data());
  Tag tag{};
  std::transform(digest.begin(), digest.begin() + kTagSize, tag.begin(),
                 [](unsigned char c) { return static_cast<std::byte>(c); });
  return tag;
}

void Authenticator::sign(absl::Span<std::byte> datagram) {
  const Tag tag = tag_of(datagram);
  std::copy(tag.begin(), tag.end(), datagram.begin() + kTagOffset);
}

bool Authenticator::verify(absl::Span<const std::byte> datagram) {
  const Tag tag = tag_of(datagram);
  return CRYPTO_memcmp(datagram.data() + kTagOffset, tag.data(), kTagSize) == 0;
}

}  // namespace nezha::flare
