#include "flare_offload/wire/authenticator.h"

#include <openssl/core_names.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/params.h>

#include <algorithm>
#include <cstdint>
#include <stdexcept>
#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"

namespace nezha::flare {
namespace {

// What fails only without memory, or where OpenSSL's configuration forbids HMAC-SHA-256.
void require(bool done) {
  if (!done) throw std::runtime_error("OpenSSL cannot compute HMAC-SHA-256");
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

void Authenticator::Free::operator()(evp_mac_ctx_st* context) const { EVP_MAC_CTX_free(context); }

Authenticator::Authenticator(const Key& key) {
  EVP_MAC* mac = EVP_MAC_fetch(nullptr, OSSL_MAC_NAME_HMAC, nullptr);
  context_.reset(mac == nullptr ? nullptr : EVP_MAC_CTX_new(mac));
  EVP_MAC_free(mac);  // the context has its own share of it
  std::string digest = OSSL_DIGEST_NAME_SHA2_256;
  const OSSL_PARAM parameters[] = {
      OSSL_PARAM_construct_utf8_string(OSSL_MAC_PARAM_DIGEST, digest.data(), 0),
      OSSL_PARAM_construct_end()};
  require(context_ != nullptr &&
          EVP_MAC_init(context_.get(), bytes_of(key.data()), key.size(), parameters) == 1);
}

Authenticator::Tag Authenticator::tag_of(absl::Span<const std::byte> datagram) {
  constexpr size_t kPayload = kTagOffset + kTagSize;
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  size_t size = 0;
  EVP_MAC_CTX* context = context_.get();
  require(EVP_MAC_init(context, nullptr, 0, nullptr) == 1 &&  // with the same key again
          EVP_MAC_update(context, bytes_of(datagram.data()), kTagOffset) == 1 &&
          EVP_MAC_update(context, bytes_of(datagram.data() + kPayload),
                         datagram.size() - kPayload) == 1 &&
          EVP_MAC_final(context, digest.data(), &size, digest.size()) == 1);
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
