#include "flare_offload/wire/authenticator.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>

#include <algorithm>
#include <cstdint>
#include <stdexcept>
#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"

namespace nezha::flare {
namespace {

constexpr size_t kHalf = kKeySize / 2;
constexpr size_t kBlock = 16;  // bytes, AES's
constexpr unsigned char kNonce[12] = {};

// What fails only without memory, or where OpenSSL's configuration forbids AES-128.
void require(bool done) {
  if (!done) throw std::runtime_error("OpenSSL cannot compute AES-128's GMAC");
}

const unsigned char* bytes_of(const std::byte* data) {
  return reinterpret_cast<const unsigned char*>(data);
}

}  // namespace

absl::StatusOr<Key> parse_key(absl::string_view hex) {
  if (hex.size() != 2 * kKeySize || !std::all_of(hex.begin(), hex.end(), absl::ascii_isxdigit)) {
    return absl::InvalidArgumentError("a key has 64 hex digits");
  }
  const std::string text = absl::HexStringToBytes(hex);
  Key key{};
  std::transform(text.begin(), text.end(), key.begin(),
                 [](char c) { return static_cast<std::byte>(c); });
  return key;
}

void Authenticator::Free::operator()(evp_cipher_ctx_st* context) const {
  EVP_CIPHER_CTX_free(context);
}

Authenticator::Context Authenticator::make_context(const char* cipher, const std::byte* key) {
  Context context(EVP_CIPHER_CTX_new());
  EVP_CIPHER* fetched = EVP_CIPHER_fetch(nullptr, cipher, nullptr);
  const bool done =
      context != nullptr && fetched != nullptr &&
      EVP_EncryptInit_ex2(context.get(), fetched, bytes_of(key), nullptr, nullptr) == 1;
  EVP_CIPHER_free(fetched);  // the context has its own share of it
  require(done);
  return context;
}

Authenticator::Authenticator(const Key& key)
    : hash_(make_context("AES-128-GCM", key.data())),
      cipher_(make_context("AES-128-ECB", key.data() + kHalf)) {}

Authenticator::Tag Authenticator::tag_of(absl::Span<const std::byte> datagram) {
  const absl::Span<const std::byte> payload = datagram.subspan(kTagOffset + kTagSize);
  std::array<unsigned char, kBlock> digest{};
  int written = 0;
  EVP_CIPHER_CTX* hash = hash_.get();
  const auto absorb = [&](absl::Span<const std::byte> part) {
    return part.empty() || EVP_EncryptUpdate(hash, nullptr, &written, bytes_of(part.data()),
                                             static_cast<int>(part.size())) == 1;
  };
  require(EVP_EncryptInit_ex2(hash, nullptr, nullptr, kNonce, nullptr) == 1 &&
          absorb(datagram.first(kTagOffset)) && absorb(payload) &&
          EVP_EncryptFinal_ex(hash, digest.data(), &written) == 1 &&
          EVP_CIPHER_CTX_ctrl(hash, EVP_CTRL_AEAD_GET_TAG, kBlock, digest.data()) == 1 &&
          EVP_EncryptUpdate(cipher_.get(), digest.data(), &written, digest.data(), kBlock) == 1);
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
