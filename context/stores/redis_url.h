// SPDX-License-Identifier: Apache-2.0
// The URL of a Redis store: the server and the store's settings (documented in
// nezha/redis_store.h).
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/clock.h"

namespace nezha {

struct RedisUrl {
  std::string host;
  uint16_t port = 6379;
  std::string socket_path;  // if it is not empty, replaces host and port
  std::string user;
  std::string password;
  int database = 0;
  std::string prefix = "nezha";
  Nanos ttl = 24 * 3600 * kSecond;
  Nanos timeout = 10 * kSecond;

  // Errors never quote what may be the password, or a part of it.
  static absl::StatusOr<RedisUrl> parse(absl::string_view text);

  // Returns host:port, [host]:port or the socket's path.
  std::string server() const;
};

}  // namespace nezha
