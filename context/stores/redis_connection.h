// SPDX-License-Identifier: Apache-2.0
// A connection to a Redis server: sends commands and parses answers (RESP2, by hiredis's reader).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/clock.h"
#include "context/stores/redis_url.h"
#include "context/stores/stream.h"

namespace nezha {

// An answer that a server may give to the commands that we use. Errors become a Status instead.
struct RedisReply {
  enum class Kind { kStatus, kInteger, kString, kNil };
  Kind kind = Kind::kNil;
  std::string text;  // the text of a status or a string
  int64_t integer = 0;
};

// The server is not trusted: an answer of another kind, of another protocol, or larger than
// kMaxReply ends the connection. Errors say what was tried and what to do, and never have the
// password in them. They are
//   Unavailable           trying again may help: refused, lost, the server is loading or busy
//   DeadlineExceeded      no answer in time
//   PermissionDenied      the password is wrong or missing, or the user may not do this
//   FailedPrecondition    no such database, a read-only or otherwise unfit server
//   ResourceExhausted     the server's memory is full
//   InvalidArgument       another error of the server's
//   DataLoss              the answer is not Redis protocol
//   NotFound              no such host
// Not thread-safe.
class RedisConnection {
 public:
  static constexpr size_t kMaxReply = 2 << 20;  // bytes

  // Connects, logs in, and selects the database.
  static absl::StatusOr<RedisConnection> open(const RedisUrl& url, Nanos deadline);

  // After an error other than the server's own (see is_broken()), the connection may not be used
  // again.
  absl::StatusOr<RedisReply> command(const std::vector<absl::string_view>& words, Nanos deadline);
  bool is_broken() const { return broken_; }

 private:
  RedisConnection(Stream stream, std::string password)
      : stream_(std::move(stream)), password_(std::move(password)) {}
  absl::Status log_in(const RedisUrl& url, Nanos deadline);
  absl::StatusOr<RedisReply> receive(Nanos deadline);
  absl::Status refusal(absl::string_view text) const;

  Stream stream_;
  std::string password_;  // kept to remove it from messages
  bool broken_ = false;
};

}  // namespace nezha
