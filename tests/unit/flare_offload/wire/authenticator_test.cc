// SPDX-License-Identifier: Apache-2.0
#include "flare_offload/wire/authenticator.h"

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "gtest/gtest.h"

namespace nezha::flare {
namespace {

Key key_of(uint8_t first) {
  Key key{};
  for (std::byte& byte : key) byte = static_cast<std::byte>(first++);
  return key;
}

// The expected tag comes from a few lines of Python that follow the definition of GHASH in SP
// 800-38D, and from the command openssl enc -aes-128-ecb.
TEST(Authenticator, MakesTheTagOfItsDefinition) {
  std::vector<std::byte> datagram(50 + kTagSize, std::byte{0xdd});
  Authenticator(key_of(0)).sign(absl::MakeSpan(datagram));
  const std::string tag(reinterpret_cast<const char*>(&datagram[kTagOffset]), kTagSize);
  EXPECT_EQ(absl::BytesToHexString(tag), "762b6e8d885056d2f9ce8372");
}

// Changing either half of the key changes the tag.
TEST(Authenticator, NeedsTheWholeKey) {
  std::vector<std::byte> datagram(50 + kTagSize, std::byte{0xdd});
  Authenticator(key_of(0)).sign(absl::MakeSpan(datagram));
  for (const size_t byte : {0, 15, 16, 31}) {
    Key other = key_of(0);
    other[byte] ^= std::byte{1};
    EXPECT_FALSE(Authenticator(other).verify(datagram));
  }
}

TEST(Authenticator, VerifiesWhatItSigned) {
  Authenticator authenticator(key_of(1));
  for (const size_t size : {32, 33, 1440, 9000}) {
    std::vector<std::byte> datagram(size, std::byte{7});
    authenticator.sign(absl::MakeSpan(datagram));
    EXPECT_TRUE(authenticator.verify(datagram));
    EXPECT_TRUE(Authenticator(key_of(1)).verify(datagram));
    EXPECT_FALSE(Authenticator(key_of(2)).verify(datagram));
  }
}

TEST(Authenticator, FindsEachBitThatWasChanged) {
  Authenticator authenticator(key_of(1));
  std::vector<std::byte> datagram(45, std::byte{7});
  authenticator.sign(absl::MakeSpan(datagram));
  for (size_t bit = 0; bit < 8 * datagram.size(); ++bit) {
    const auto flipped = static_cast<std::byte>(1 << (bit % 8));
    datagram[bit / 8] ^= flipped;
    EXPECT_FALSE(authenticator.verify(datagram)) << "bit " << bit;
    datagram[bit / 8] ^= flipped;
  }
  EXPECT_TRUE(authenticator.verify(datagram));
  EXPECT_FALSE(authenticator.verify(absl::MakeSpan(datagram).first(44)));
}

TEST(Authenticator, ReadsKeys) {
  const auto key = parse_key("000102030405060708090a0b0c0d0e0f101112131415161718191A1B1C1D1E1F");
  ASSERT_TRUE(key.ok()) << key.status();
  EXPECT_EQ(*key, key_of(0));
  const std::string hex(2 * kKeySize, 'a');
  for (const std::string& text : {std::string(), hex + "a", hex.substr(1), hex.substr(1) + "g"}) {
    const auto refused = parse_key(text);
    EXPECT_EQ(refused.status().message(), "a key has 64 hex digits");
  }
}

}  // namespace
}  // namespace nezha::flare
