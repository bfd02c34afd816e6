// SPDX-License-Identifier: Apache-2.0
#include "context/stores/redis_url.h"

#include <sys/un.h>

#include <charconv>
#include <cstdint>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/time.h"

namespace nezha {
namespace {

constexpr absl::string_view kTcp = "redis://";
constexpr absl::string_view kUnix = "redis+unix://";
constexpr size_t kMaxPrefix = 256;

absl::Status bad(absl::string_view why) {
  return absl::InvalidArgumentError(absl::StrCat(
      "bad Redis URL: ", why,
      "; the form is "
      "redis://[[USER]:PASSWORD@]HOST[:PORT][/DATABASE][?prefix=NAME&ttl=24h&timeout=10s]"
      " or redis+unix://[[USER]:PASSWORD@]/PATH[?database=N&...]"));
}

// Decodes a text by RFC 3986, section 2.1.
absl::StatusOr<std::string> percent_decoded(absl::string_view text) {
  std::string decoded;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      decoded += text[i];
      continue;
    }
    const absl::string_view digits = text.substr(i + 1, 2);
    if (digits.size() != 2 || !absl::ascii_isxdigit(digits[0]) ||
        !absl::ascii_isxdigit(digits[1])) {
      return bad("a '%' that two hexadecimal digits do not follow (write %25 for it)");
    }
    uint8_t byte = 0;
    std::from_chars(digits.data(), digits.data() + 2, byte, 16);
    decoded += static_cast<char>(byte);
    i += 2;
  }
  return decoded;
}

absl::Status set_credentials(RedisUrl& url, absl::string_view text) {
  const size_t colon = text.find(':');
  if (colon == absl::string_view::npos) return bad("a user without a password");
  const auto user = percent_decoded(text.substr(0, colon));
  const auto password = percent_decoded(text.substr(colon + 1));
  if (!user.ok()) return user.status();
  if (!password.ok()) return password.status();
  if (password->empty()) return bad("an empty password");
  url.user = *user;
  url.password = *password;
  return absl::OkStatus();
}

// Does not quote a bad port: if the '@' is missing, the port may be the password.
absl::Status set_host(RedisUrl& url, absl::string_view text) {
  absl::string_view port;
  if (absl::ConsumePrefix(&text, "[")) {
    const size_t end = text.find(']');
    if (end == absl::string_view::npos) return bad("a '[' without its ']'");
    url.host = std::string(text.substr(0, end));
    port = text.substr(end + 1);
    if (!port.empty() && !absl::ConsumePrefix(&port, ":")) return bad("no ':' after the ']'");
  } else {
    const std::pair<absl::string_view, absl::string_view> halves =
        absl::StrSplit(text, absl::MaxSplits(':', 1));
    url.host = std::string(halves.first);
    port = halves.second;
    if (absl::StrContains(port, ':')) return bad("an IPv6 address goes into brackets: [fd00::1]");
  }
  if (url.host.empty()) return bad("no host");
  if (port.empty()) return absl::OkStatus();
  uint32_t number = 0;
  if (!absl::SimpleAtoi(port, &number) || number < 1 || number > 65535) {
    return bad("the port is no number from 1 to 65535");
  }
  url.port = static_cast<uint16_t>(number);
  return absl::OkStatus();
}

absl::Status set_database(RedisUrl& url, absl::string_view text) {
  if (text.empty() || (absl::SimpleAtoi(text, &url.database) && url.database >= 0)) {
    return absl::OkStatus();
  }
  return bad(absl::StrCat("the database '", text, "' is no whole number of at least 0"));
}

absl::Status set_path(RedisUrl& url, absl::string_view text) {
  auto path = percent_decoded(text);
  if (!path.ok()) return path.status();
  if (!absl::StartsWith(*path, "/")) return bad("the path of a socket begins with a '/'");
  if (path->size() >= sizeof(sockaddr_un::sun_path))
    return bad("the path of the socket is too long");
  url.socket_path = *std::move(path);
  return absl::OkStatus();
}

absl::StatusOr<Nanos> to_span(absl::string_view key, absl::string_view text, absl::Duration least,
                              absl::Duration most) {
  absl::Duration span;
  if (absl::ParseDuration(text, &span) && span >= least && span <= most) {
    return absl::ToInt64Nanoseconds(span);
  }
  return bad(absl::StrCat(key, "=", text, " is no time from ", absl::FormatDuration(least), " to ",
                          absl::FormatDuration(most)));
}

absl::Status set_option(RedisUrl& url, absl::string_view key, const std::string& value) {
  if (key == "prefix") {
    if (value.empty() || value.size() > kMaxPrefix) {
      return bad(absl::StrCat("a prefix has 1 to ", kMaxPrefix, " characters"));
    }
    url.prefix = value;
    return absl::OkStatus();
  }
  if (key == "ttl" || key == "timeout") {
    const bool is_ttl = key == "ttl";
    const auto span = to_span(key, value, is_ttl ? absl::Seconds(1) : absl::Milliseconds(10),
                              is_ttl ? absl::Hours(24 * 365) : absl::Hours(1));
    if (!span.ok()) return span.status();
    (is_ttl ? url.ttl : url.timeout) = *span;
    return absl::OkStatus();
  }
  if (key == "database" && !url.socket_path.empty()) return set_database(url, value);
  return bad(absl::StrCat("unknown option '", key, "' (there are prefix, ttl, timeout",
                          url.socket_path.empty() ? "" : ", database", ")"));
}

absl::Status set_options(RedisUrl& url, absl::string_view text) {
  for (const absl::string_view option : absl::StrSplit(text, '&', absl::SkipEmpty())) {
    const std::pair<absl::string_view, absl::string_view> pair =
        absl::StrSplit(option, absl::MaxSplits('=', 1));
    const auto value = percent_decoded(pair.second);
    if (!value.ok()) return value.status();
    if (absl::Status status = set_option(url, pair.first, *value); !status.ok()) return status;
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<RedisUrl> RedisUrl::parse(absl::string_view text) {
  const bool is_unix = absl::ConsumePrefix(&text, kUnix);
  if (!is_unix && !absl::ConsumePrefix(&text, kTcp)) {
    return bad(absl::StartsWith(text, "rediss://") ? "rediss (TLS) is not supported; use a tunnel"
                                                   : "it begins with neither redis:// nor"
                                                     " redis+unix://");
  }
  const std::pair<absl::string_view, absl::string_view> halves =
      absl::StrSplit(text, absl::MaxSplits('?', 1));
  absl::string_view place = halves.first;
  const size_t slash = std::min(place.find('/'), place.size());
  const size_t at = place.substr(0, slash).rfind('@');
  if (absl::StrContains(place.substr(slash), '@') || absl::StrContains(halves.second, '@') ||
      absl::StrContains(text, '#')) {
    return bad(
        "an '@' or a '#' out of place; in a password, write %40 %23 %2F %3F %3A for @ # / ? :");
  }
  RedisUrl url;
  absl::Status status;
  if (at != absl::string_view::npos) {
    status = set_credentials(url, place.substr(0, at));
    place.remove_prefix(at + 1);
  }
  if (status.ok() && is_unix) status = set_path(url, place);
  if (status.ok() && !is_unix) {
    const std::pair<absl::string_view, absl::string_view> parts =
        absl::StrSplit(place, absl::MaxSplits('/', 1));
    status = set_host(url, parts.first);
    if (status.ok()) status = set_database(url, parts.second);
  }
  if (status.ok()) status = set_options(url, halves.second);
  if (!status.ok()) return status;
  return url;
}

std::string RedisUrl::server() const {
  if (!socket_path.empty()) return socket_path;
  const bool is_ipv6 = absl::StrContains(host, ':');
  return absl::StrCat(is_ipv6 ? "[" : "", host, is_ipv6 ? "]" : "", ":", port);
}

}  // namespace nezha
