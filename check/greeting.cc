// SPDX-License-Identifier: Apache-2.0
#include "check/greeting.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "common/fields.h"

namespace nezha::check {
namespace {

constexpr uint64_t kHelloMagic = 0x316f6c6c65487a6e;    // "nzHello1"
constexpr uint64_t kWelcomeMagic = 0x31656d6f636c6557;  // "Welcome1"
constexpr size_t kNameSize = 16;

}  // namespace

HelloBytes encode(const Hello& hello) {
  HelloBytes bytes;
  FieldWriter(bytes.data())
      .put(kHelloMagic)
      .put(hello.token)
      .put(hello.from)
      .put(hello.to)
      .put(hello.rail)
      .put(static_cast<uint8_t>(hello.service));
  return bytes;
}

std::optional<Hello> decode_hello(const HelloBytes& bytes) {
  FieldReader reader(bytes.data());
  if (reader.get<uint64_t>() != kHelloMagic) return std::nullopt;
  Hello hello;
  hello.token = reader.get_id();
  hello.from = reader.get<uint32_t>();
  hello.to = reader.get<uint32_t>();
  hello.rail = reader.get<uint32_t>();
  const auto service = reader.get<uint8_t>();
  if (service >= kServices) return std::nullopt;
  hello.service = static_cast<Service>(service);
  return hello;
}

WelcomeBytes encode(const Welcome& welcome) {
  WelcomeBytes bytes;
  FieldWriter(bytes.data())
      .put(kWelcomeMagic)
      .put(welcome.token)
      .put(welcome.rank)
      .put(welcome.interface, kNameSize);
  return bytes;
}

std::optional<Welcome> decode_welcome(const WelcomeBytes& bytes) {
  FieldReader reader(bytes.data());
  if (reader.get<uint64_t>() != kWelcomeMagic) return std::nullopt;
  Welcome welcome;
  welcome.token = reader.get_id();
  welcome.rank = reader.get<uint32_t>();
  const absl::string_view name = reader.get_text(kNameSize);
  welcome.interface = std::string(name.substr(0, name.find('\0')));
  const bool is_text = std::all_of(welcome.interface.begin(), welcome.interface.end(),
                                   [](unsigned char c) { return absl::ascii_isgraph(c); });
  const absl::string_view rest = name.substr(welcome.interface.size());
  const bool is_padded = rest.find_first_not_of('\0') == rest.npos;
  if (!is_text || rest.empty() || !is_padded) return std::nullopt;
  return welcome;
}

}  // namespace nezha::check
