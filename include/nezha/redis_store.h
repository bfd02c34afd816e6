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

/// A gloo::rendezvous::Store whose keys are on a Redis server (2.6.12 or later, one that is no
/// cluster). For Context::create(), and for Gloo itself. Each key is written once; it
/// expires by itself, and goes when the store of the process that has set it does.
///
/// Every call has a deadline: that of the URL, or its own. Within it a connection that is lost is
/// made again, and a server that restarts, loads its data or has too many clients is waited for. A
/// server that comes back without its data gets back the keys that this process has set, at the
/// process's next call: a rank that calls no more leaves its keys lost, so let a server that may
/// restart keep its data (`appendonly yes`).
///
/// Errors (each names the server, the key, and what to do; none has the password in it):
///   - InvalidArgument: a bad URL, key, value or timeout; nothing was sent
///   - TimeoutError: a key is not there in time, or the server is not
///   - IoError: the server refuses (wrong password, no such database, memory full), is none, or the
///     key is there already with another value; or this process has no descriptor or thread left
///
/// Thread-safe: the calls of several threads share one connection and take turns command by
/// command. In a child of fork() the parent's store can be destroyed only, which does nothing; its
/// calls throw InvalidArgument.
///
/// Nothing is encrypted: for a trusted network. A password on a command line is seen by all users
/// of the host.
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
  /// An IPv6 address is in brackets. A percent sign and two hexadecimal digits stand for a byte
  /// (RFC 3986, section 2.1). The port is 6379 and the database 0 unless given. The options:
  ///
  /// - prefix: a name of the job; keys on the server are PREFIX/KEY. Must be the same on all ranks
  ///   and another for each run. Default: nezha
  /// - ttl: the time after which a key expires, such as 90m. A rank may read another's keys when it
  ///   first speaks to it, so not less than the job's time. Default: 24h
  /// - timeout: the deadline of each command, with the time to connect again. Default: 10s
  explicit RedisStore(const std::string& url);

  /// Removes the keys that this process has set, which takes one second at most; those of a server
  /// that cannot be reached are left to expire, as are all where nobody destroys the store: in a
  /// process that is killed, after a Context::create that has failed (whose reason the other ranks
  /// are to find), and of a nezha-bench that fails. Other ranks must not need the keys any more: a
  /// Context keeps its store for as long as it lives.
  ~RedisStore() override;

  RedisStore(const RedisStore&) = delete;
  RedisStore& operator=(const RedisStore&) = delete;

  /// Sets a key that is not there yet. To set it again to the same value is no error.
  void set(const std::string& key, const std::vector<char>& data) override;
  /// Waits for the key, up to kDefaultTimeout, and returns its value.
  std::vector<char> get(const std::string& key) override;
  /// Waits until all keys are there, up to kDefaultTimeout.
  void wait(const std::vector<std::string>& keys) override;
  /// Likewise, up to `timeout`, which must be positive.
  void wait(const std::vector<std::string>& keys,
            const std::chrono::milliseconds& timeout) override;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace nezha
