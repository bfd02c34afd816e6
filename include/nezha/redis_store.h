// SPDX-License-Identifier: Apache-2.0
/// A rendezvous store on a Redis server, for ranks that share no file system.
#pragma once

#include <gloo/rendezvous/store.h>

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "nezha/export.h"

namespace nezha {

/// A gloo::rendezvous::Store whose keys are on a Redis server (2.6.12 or later, and no cluster). It
/// is for Context::create(), and for Gloo itself. Each key is written once. It expires by itself,
/// and is removed when the process that has set it destroys its store.
///
/// Every call has a deadline: that of the URL, or its own. Within the deadline a lost connection is
/// made again, and the store waits for a server that restarts, loads its data or has too many
/// clients. A server that comes back without its data gets back the keys that this process has set,
/// at the process's next call. The keys of a rank that makes no more calls stay lost, so let a
/// server that may restart keep its data (`appendonly yes`).
///
/// Errors (each names the server, the key, and what to do; none contains the password):
///   - InvalidArgument: a bad URL, key, value or timeout; nothing was sent
///   - TimeoutError: a key does not appear in time, or the server is not available in time
///   - IoError: the server refuses (wrong password, no such database, memory full), is no Redis
///     server, or has the key already with another value; or this process has no descriptor or
///     thread left
///
/// Thread-safe: the calls of several threads share one connection and take turns command by
/// command. In a child of fork() the parent's store can only be destroyed, which does nothing; its
/// calls throw InvalidArgument.
///
/// Nothing is encrypted: use it on a trusted network only. All users of the host can see a password
/// on a command line.
class NEZHA_EXPORT RedisStore final : public ::gloo::rendezvous::Store {
 public:
  /// The largest value, in bytes.
  static constexpr size_t kMaxValue = 1 << 20;
  /// The longest key, in bytes, without the prefix.
  static constexpr size_t kMaxKey = 1 << 10;

  /// Connects to the server of `url`:
  ///
  ///     redis://[[USER]:PASSWORD@]HOST[:PORT][/DATABASE][?OPTION=VALUE[&OPTION=VALUE]...]
  ///     redis+unix://[[USER]:PASSWORD@]/PATH[?database=N][&OPTION=VALUE]...
  ///
  /// An IPv6 address is in brackets. A percent sign and two hexadecimal digits are one byte (RFC
  /// 3986, section 2.1). The port is 6379 and the database 0 unless given. The options:
  ///
  /// - prefix: a name of the job; keys on the server are PREFIX/KEY. It must be the same on all
  ///   ranks and different for each run. Default: nezha
  /// - ttl: the time after which a key expires, such as 90m. A rank may read another's keys as late
  ///   as when the two first exchange something, so it should not be less than the job's time.
  ///   Default: 24h
  /// - timeout: the deadline of each command, including the time to connect again. Default: 10s
  explicit RedisStore(const std::string& url);

  /// Removes the keys that this process has set, which takes one second at most. The keys on a
  /// server that cannot be reached are left to expire. So are all keys if nobody destroys the
  /// store: in a process that is killed, after a Context::create that has failed (whose reason the
  /// other ranks are to find), and in a nezha-bench that fails. Other ranks must not need the keys
  /// any more: a Context keeps its store for as long as it lives.
  ~RedisStore() override;

  RedisStore(const RedisStore&) = delete;
  RedisStore& operator=(const RedisStore&) = delete;

  /// Sets a key that does not exist yet. Setting it again to the same value is no error.
  void set(const std::string& key, const std::vector<char>& data) override;
  /// Waits for the key, up to kDefaultTimeout, and returns its value.
  std::vector<char> get(const std::string& key) override;
  /// Waits until all keys exist, up to kDefaultTimeout.
  void wait(const std::vector<std::string>& keys) override;
  /// Waits until all keys exist, up to `timeout`, which must be positive.
  void wait(const std::vector<std::string>& keys,
            const std::chrono::milliseconds& timeout) override;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace nezha
