// SPDX-License-Identifier: Apache-2.0
#include "context/stores/redis_url.h"

#include <string>
#include <utility>

#include "gtest/gtest.h"

namespace nezha {
namespace {

TEST(RedisUrl, HasDefaults) {
  const auto url = RedisUrl::parse("redis://head");
  ASSERT_TRUE(url.ok()) << url.status();
  EXPECT_EQ(url->host, "head");
  EXPECT_EQ(url->port, 6379);
  EXPECT_EQ(url->socket_path, "");
  EXPECT_EQ(url->user, "");
  EXPECT_EQ(url->password, "");
  EXPECT_EQ(url->database, 0);
  EXPECT_EQ(url->prefix, "nezha");
  EXPECT_EQ(url->ttl, 24 * 3600 * kSecond);
  EXPECT_EQ(url->timeout, 10 * kSecond);
  EXPECT_EQ(url->server(), "head:6379");
}

TEST(RedisUrl, HasAllItsParts) {
  const auto url = RedisUrl::parse(
      "redis://us%3Aer:p%40ss:%2f%25@[fd00::1]:7000/12?prefix=job%2F7&ttl=90m&timeout=500ms");
  ASSERT_TRUE(url.ok()) << url.status();
  EXPECT_EQ(url->host, "fd00::1");
  EXPECT_EQ(url->port, 7000);
  EXPECT_EQ(url->user, "us:er");
  EXPECT_EQ(url->password, "p@ss:/%");
  EXPECT_EQ(url->database, 12);
  EXPECT_EQ(url->prefix, "job/7");
  EXPECT_EQ(url->ttl, 5400 * kSecond);
  EXPECT_EQ(url->timeout, 500 * kMillisecond);
  EXPECT_EQ(url->server(), "[fd00::1]:7000");
}

TEST(RedisUrl, MayNameAUnixSocket) {
  const auto url = RedisUrl::parse("redis+unix://:secret@/run/my%20redis.sock?database=3&prefix=a");
  ASSERT_TRUE(url.ok()) << url.status();
  EXPECT_EQ(url->socket_path, "/run/my redis.sock");
  EXPECT_EQ(url->password, "secret");
  EXPECT_EQ(url->database, 3);
  EXPECT_EQ(url->server(), "/run/my redis.sock");
  EXPECT_EQ(RedisUrl::parse("redis+unix:///run/redis.sock")->socket_path, "/run/redis.sock");
}

TEST(RedisUrl, MayLeaveOutParts) {
  EXPECT_EQ(RedisUrl::parse("redis://:x@h")->password, "x");
  EXPECT_EQ(RedisUrl::parse("redis://h:")->port, 6379);
  EXPECT_EQ(RedisUrl::parse("redis://h/")->database, 0);
  EXPECT_EQ(RedisUrl::parse("redis://[::1]/2")->database, 2);
  EXPECT_EQ(RedisUrl::parse("redis://h?prefix=p")->prefix, "p");
}

TEST(RedisUrl, OthersAreRefusedWithAReason) {
  const std::pair<std::string, std::string> cases[] = {
      {"", "redis://"},
      {"http://h", "neither redis:// nor"},
      {"rediss://h", "TLS"},
      {"redis://", "no host"},
      {"redis://:x@", "no host"},
      {"redis://h:0", "port"},
      {"redis://h:65536", "port"},
      {"redis://h:6379x", "port"},
      {"redis://fd00::1", "brackets"},
      {"redis://[fd00::1", "without its ']'"},
      {"redis://[fd00::1]6379", "no ':'"},
      {"redis://h/-1", "database '-1'"},
      {"redis://h/one", "database 'one'"},
      {"redis://user@h", "user without a password"},
      {"redis://user:@h", "empty password"},
      {"redis://h?prefix=", "prefix"},
      {"redis://h?prefix=" + std::string(257, 'x'), "prefix"},
      {"redis://h?ttl=0s", "ttl=0s"},
      {"redis://h?ttl=7", "ttl=7"},
      {"redis://h?timeout=inf", "timeout=inf"},
      {"redis://h?timeout=2h", "timeout=2h"},
      {"redis://h?tll=1h", "unknown option 'tll'"},
      {"redis://h?database=1", "unknown option 'database'"},
      {"redis://h?prefix=%4", "hexadecimal"},
      {"redis://h?prefix=%zz", "hexadecimal"},
      {"redis+unix://redis.sock", "begins with a '/'"},
      {"redis+unix:///" + std::string(200, 'x'), "too long"},
      {"redis+unix:///s?database=x", "database 'x'"},
  };
  for (const auto& [text, reason] : cases) {
    const absl::Status status = RedisUrl::parse(text).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << text;
    EXPECT_NE(status.message().find(reason), absl::string_view::npos) << text << ": " << status;
  }
}

TEST(RedisUrl, AnErrorNeverHasThePasswordInIt) {
  for (const std::string text :
       {"redis://:secret", "redis://user:secret", "redis://user:secret@h:bad",
        "redis://user:se/secret@h", "redis://user:se?secret@h", "redis://user:secret#@h",
        "redis://user:secret%@h", "redis://user:secret@", "redis://user:secret@h?x=1",
        "redis://user:secret@h/x", "redis+unix://:secret@sock", "redis://user:secret:6379"}) {
    const absl::Status status = RedisUrl::parse(text).status();
    EXPECT_FALSE(status.ok()) << text;
    EXPECT_EQ(status.message().find("secret"), absl::string_view::npos) << status;
  }
}

}  // namespace
}  // namespace nezha
