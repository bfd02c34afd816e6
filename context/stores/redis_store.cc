// SPDX-License-Identifier: Apache-2.0
#include "nezha/redis_store.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <map>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "common/clock.h"
#include "common/fork.h"
#include "common/log.h"
#include "context/stores/redis_connection.h"
#include "context/stores/redis_url.h"
#include "nezha/errors.h"

namespace nezha {
namespace {

constexpr Nanos kFirstPause = kMillisecond;
constexpr Nanos kLongestPause = 50 * kMillisecond;
constexpr Nanos kFarewell = kSecond;  // the time to remove the keys at the end
constexpr size_t kAskedAtOnce = 64;   // keys that wait() asks for in a round, and names in an error

// Each pause is longer than the one before, up to kLongestPause. pause() returns false, without
// sleeping, if the deadline comes first.
class Backoff {
 public:
  bool pause(Nanos deadline) {
    if (now() + pause_ >= deadline) return false;
    std::this_thread::sleep_for(std::chrono::nanoseconds(pause_));
    pause_ = std::min(2 * pause_, kLongestPause);
    return true;
  }

 private:
  Nanos pause_ = kFirstPause;
};

// Replaces std::timed_mutex, whose timed lock the thread sanitizer of clang 14 does not know.
class TimedMutex {
 public:
  bool try_lock_until(std::chrono::steady_clock::time_point deadline) {
    std::unique_lock lock(mutex_);
    if (!released_.wait_until(lock, deadline, [this] { return !taken_; })) return false;
    taken_ = true;
    return true;
  }
  void unlock() {
    const std::lock_guard lock(mutex_);
    taken_ = false;
    released_.notify_one();
  }

 private:
  std::mutex mutex_;
  std::condition_variable released_;
  bool taken_ = false;
};

absl::Status unexpected(absl::string_view what) {
  return absl::DataLossError(absl::StrCat("the server did not answer with ", what,
                                          "; is this a Redis server, and not another program?"));
}

}  // namespace

class RedisStore::Impl {
 public:
  explicit Impl(RedisUrl url) : url_(std::move(url)) {}

  bool is_inherited() const { return mark_.is_inherited(); }
  // Returns this, or throws if this process has inherited it by fork().
  Impl& own();
  ~Impl() { remove_keys(); }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  // Checks that the server is there and accepts the password. Throws if not.
  void greet();
  void set(const std::string& key, const std::vector<char>& data);
  std::vector<char> get(const std::string& key);
  void wait(const std::vector<std::string>& keys, std::chrono::milliseconds timeout);

 private:
  using Words = std::vector<absl::string_view>;

  Nanos deadline() const { return now() + url_.timeout; }
  std::string full_key(absl::string_view key) const;
  absl::StatusOr<std::optional<std::string>> value_of(const std::string& full_key, Nanos deadline);
  absl::StatusOr<bool> exists(const std::string& full_key, Nanos deadline);
  absl::Status put(const std::string& full_key, const std::string& value, Nanos deadline);

  // Sends one command, and repeats it as long as that may help.
  absl::StatusOr<RedisReply> ask(const Words& words, Nanos deadline);
  absl::StatusOr<RedisReply> try_once(const Words& words, Nanos deadline);
  Words set_if_absent(const std::string& full_key, const std::string& value) const;
  // Callers hold the lock. Sets this process's keys again on a new connection, because the server
  // may have lost them.
  absl::Status ensure_connection(Nanos deadline);
  std::map<std::string, std::string> own_keys() {
    const std::lock_guard lock(own_mutex_);
    return own_;
  }
  void remove_keys();

  [[noreturn]] void raise(const absl::Status& status, absl::string_view what) const;

  const ForkMark mark_;
  const RedisUrl url_;
  const std::string ttl_ms_ = std::to_string(url_.ttl / kMillisecond);
  TimedMutex mutex_;
  std::optional<RedisConnection> connection_;  // under the lock
  std::mutex own_mutex_;                       // never held while the server is asked
  std::map<std::string, std::string> own_;     // values that this process has set, by full key
};

RedisStore::Impl& RedisStore::Impl::own() {
  if (!is_inherited()) return *this;
  throw InvalidArgument(absl::StrCat("nezha: Redis server ", url_.server(), ": ",
                                     "this process is a child that fork() has made since; it may ",
                                     "make a store of its own"));
}

// ---- The calls ---------------------------------------------------------------------------------

void RedisStore::Impl::greet() {
  // Uses a command that the store needs permission for anyway.
  if (const auto found = exists(full_key("greeting"), deadline()); !found.ok()) {
    raise(found.status(), "opening the store");
  }
}

void RedisStore::Impl::set(const std::string& key, const std::vector<char>& data) {
  const std::string full = full_key(key);
  if (data.size() > kMaxValue) {
    throw InvalidArgument(absl::StrCat("nezha: the value of key '", full, "' has ", data.size(),
                                       " bytes; at most ", kMaxValue, " go into the store"));
  }
  const absl::Status status = put(full, std::string(data.begin(), data.end()), deadline());
  if (!status.ok()) raise(status, absl::StrCat("setting key '", full, "'"));
}

std::vector<char> RedisStore::Impl::get(const std::string& key) {
  const std::string full = full_key(key);
  auto value = value_of(full, deadline());
  const bool is_silent = absl::IsDeadlineExceeded(value.status());
  if (is_silent || (value.ok() && !value->has_value())) {
    wait({key}, kDefaultTimeout);
    value = value_of(full, deadline());
  }
  if (value.ok() && !value->has_value()) {
    value = absl::UnavailableError("the key was there, but has expired or was removed");
  }
  if (!value.ok()) raise(value.status(), absl::StrCat("getting key '", full, "'"));
  return {(*value)->begin(), (*value)->end()};
}

void RedisStore::Impl::wait(const std::vector<std::string>& keys,
                            std::chrono::milliseconds timeout) {
  if (timeout.count() <= 0) {
    throw InvalidArgument(absl::StrCat("nezha: the timeout of the wait for keys is ",
                                       timeout.count(), " ms; give a positive one"));
  }
  const Nanos end = now() + to_nanos(timeout);
  std::vector<std::string> missing;
  missing.reserve(keys.size());
  for (const std::string& key : keys) missing.push_back(full_key(key));
  absl::Status status;
  for (Backoff backoff; status.ok() && !missing.empty();) {
    const size_t asked = std::min(missing.size(), kAskedAtOnce);
    const auto is_there = [&](const std::string& key) {
      if (!status.ok()) return false;
      const auto found = exists(key, std::min(end, deadline()));
      // The connection no longer answers; the next one may.
      const bool try_again = absl::IsDeadlineExceeded(found.status()) && now() < end;
      if (!found.ok() && !try_again) status = found.status();
      return found.ok() && *found;
    };
    const auto asked_end = missing.begin() + static_cast<ptrdiff_t>(asked);
    const auto still_end = std::remove_if(missing.begin(), asked_end, is_there);
    const bool all_there = still_end == missing.begin();
    missing.erase(still_end, asked_end);
    if (status.ok() && !all_there && !backoff.pause(end)) {
      status = absl::DeadlineExceededError(
          "the process that sets them has not come, or it uses another server, database or prefix");
    }
  }
  if (status.ok()) return;
  const size_t more = missing.size() - std::min(missing.size(), kAskedAtOnce);
  missing.resize(missing.size() - more);
  raise(status, absl::StrCat("waiting ", timeout.count(), " ms for the keys that are missing, '",
                             absl::StrJoin(missing, "', '"), "'",
                             more > 0 ? absl::StrCat(" and up to ", more, " more") : ""));
}

// ---- Commands ----------------------------------------------------------------------------------

std::string RedisStore::Impl::full_key(absl::string_view key) const {
  if (key.empty() || key.size() > kMaxKey) {
    throw InvalidArgument(absl::StrCat("nezha: the key '", key.substr(0, 40), "' has ", key.size(),
                                       " bytes; a key has 1 to ", kMaxKey));
  }
  return absl::StrCat(url_.prefix, "/", key);
}

absl::StatusOr<bool> RedisStore::Impl::exists(const std::string& full_key, Nanos deadline) {
  const auto reply = ask({"EXISTS", full_key}, deadline);
  if (!reply.ok()) return reply.status();
  if (reply->kind != RedisReply::Kind::kInteger) return unexpected("a number");
  return reply->integer > 0;
}

absl::StatusOr<std::optional<std::string>> RedisStore::Impl::value_of(const std::string& full_key,
                                                                      Nanos deadline) {
  const auto reply = ask({"GET", full_key}, deadline);
  if (!reply.ok()) return reply.status();
  if (reply->kind == RedisReply::Kind::kNil) return std::nullopt;
  if (reply->kind != RedisReply::Kind::kString) return unexpected("a value");
  return reply->text;
}

RedisStore::Impl::Words RedisStore::Impl::set_if_absent(const std::string& full_key,
                                                        const std::string& value) const {
  return {"SET", full_key, value, "PX", ttl_ms_, "NX"};
}

absl::Status RedisStore::Impl::put(const std::string& full_key, const std::string& value,
                                   Nanos deadline) {
  bool is_first = false;
  {
    // The key is noted before the command is sent: even if no answer comes, the key may have been
    // set, and must be removed at the end.
    const std::lock_guard lock(own_mutex_);
    is_first = own_.try_emplace(full_key, value).second;
  }
  const auto reply = ask(set_if_absent(full_key, value), deadline);
  if (!reply.ok()) return reply.status();
  if (reply->kind == RedisReply::Kind::kStatus) return absl::OkStatus();
  if (reply->kind != RedisReply::Kind::kNil) return unexpected("OK");
  // The key exists already. Perhaps this very command has set it, and its first answer was lost.
  const auto there = value_of(full_key, deadline);
  if (!there.ok()) return there.status();
  if (*there == value) return absl::OkStatus();
  if (is_first) {
    const std::lock_guard lock(own_mutex_);
    own_.erase(full_key);
  }
  return absl::AlreadyExistsError(absl::StrCat(
      "the key has another value already: another run uses the prefix '", url_.prefix,
      "', or a run that was killed has left the key; give each run a prefix of its own"));
}

absl::StatusOr<RedisReply> RedisStore::Impl::ask(const Words& words, Nanos deadline) {
  Backoff backoff;
  absl::Status earlier;
  while (true) {
    auto reply = try_once(words, deadline);
    // The last try may have had too little time, so the error of the try before it says more.
    if (absl::IsDeadlineExceeded(reply.status()) && !earlier.ok()) return earlier;
    if (reply.ok() || !absl::IsUnavailable(reply.status()) || !backoff.pause(deadline)) {
      return reply;
    }
    earlier = reply.status();
  }
}

absl::StatusOr<RedisReply> RedisStore::Impl::try_once(const Words& words, Nanos deadline) {
  const std::unique_lock lock(
      mutex_, std::chrono::steady_clock::time_point(std::chrono::nanoseconds(deadline)));
  if (!lock.owns_lock()) {
    return absl::DeadlineExceededError("other threads were waiting for the server all the time");
  }
  if (absl::Status status = ensure_connection(deadline); !status.ok()) return status;
  auto reply = connection_->command(words, deadline);
  if (connection_->is_broken()) connection_.reset();
  return reply;
}

absl::Status RedisStore::Impl::ensure_connection(Nanos deadline) {
  if (connection_.has_value()) return absl::OkStatus();
  auto made = RedisConnection::open(url_, deadline);
  if (!made.ok()) return made.status();
  for (const auto& [key, value] : own_keys()) {
    const auto reply = made->command(set_if_absent(key, value), deadline);
    if (!reply.ok()) return reply.status();
  }
  connection_ = *std::move(made);
  return absl::OkStatus();
}

// ---- The end -----------------------------------------------------------------------------------

void RedisStore::Impl::remove_keys() {
  const Nanos end = now() + std::min(kFarewell, url_.timeout);
  const auto own = std::exchange(own_, {});  // so that a new connection does not set them again
  for (const auto& [key, value] : own) {
    // If the key has expired, another process may have set it since.
    const auto there = value_of(key, end);
    if (there.ok() && *there != value) continue;
    const auto reply = there.ok() ? ask({"DEL", key}, end) : there.status();
    if (reply.ok()) continue;
    log().info("Redis server {}: the keys of this process are left to expire: {}", url_.server(),
               std::string(reply.status().message()));
    return;
  }
}

void RedisStore::Impl::raise(const absl::Status& status, absl::string_view what) const {
  const std::string text =
      absl::StrCat("nezha: Redis server ", url_.server(), ", ", what, ": ", status.message());
  if (absl::IsDeadlineExceeded(status) || absl::IsUnavailable(status)) throw TimeoutError(text);
  throw IoError(text);
}

// ---- What is public ----------------------------------------------------------------------------

RedisStore::RedisStore(const std::string& url) {
  auto parsed = RedisUrl::parse(url);
  if (!parsed.ok()) throw InvalidArgument("nezha: " + std::string(parsed.status().message()));
  impl_ = std::make_unique<Impl>(*std::move(parsed));
  impl_->greet();
}

RedisStore::~RedisStore() {
  // In a child of fork() the connection and the keys belong to the parent.
  if (impl_->is_inherited()) static_cast<void>(impl_.release());
}

void RedisStore::set(const std::string& key, const std::vector<char>& data) {
  impl_->own().set(key, data);
}

std::vector<char> RedisStore::get(const std::string& key) { return impl_->own().get(key); }

void RedisStore::wait(const std::vector<std::string>& keys) {
  impl_->own().wait(keys, kDefaultTimeout);
}

void RedisStore::wait(const std::vector<std::string>& keys,
                      const std::chrono::milliseconds& timeout) {
  impl_->own().wait(keys, timeout);
}

}  // namespace nezha
