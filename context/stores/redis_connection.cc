// SPDX-License-Identifier: Apache-2.0
#include "context/stores/redis_connection.h"

#include <hiredis/hiredis.h>

#include <array>
#include <memory>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"

namespace nezha {
namespace {

// The meaning of a server's error, by the text that it begins with.
struct Refusal {
  absl::string_view begin;
  absl::StatusCode code;
  absl::string_view advice;
};
constexpr absl::string_view kPasswordAdvice = "give the right user and password in the store's URL";
constexpr absl::string_view kDatabaseAdvice =
    "the server has no such database: choose another one in the store's URL, or raise `databases`"
    " in its configuration";
constexpr absl::string_view kPrimaryAdvice = "name the primary server in the store's URL";
constexpr absl::string_view kClusterAdvice =
    "this is a node of a Redis Cluster, which the store cannot use: name a single server";
constexpr Refusal kRefusals[] = {
    {"NOAUTH", absl::StatusCode::kPermissionDenied, kPasswordAdvice},
    {"WRONGPASS", absl::StatusCode::kPermissionDenied, kPasswordAdvice},
    {"ERR invalid password", absl::StatusCode::kPermissionDenied, kPasswordAdvice},
    {"ERR AUTH", absl::StatusCode::kPermissionDenied,
     "the server asks for no password: give none in the store's URL"},
    {"ERR Client sent AUTH", absl::StatusCode::kPermissionDenied,
     "the server asks for no password: give none in the store's URL"},
    {"NOPERM", absl::StatusCode::kPermissionDenied,
     "let the user have the commands SELECT SET GET EXISTS DEL on the store's keys"},
    {"DENIED", absl::StatusCode::kPermissionDenied,
     "the server is in protected mode: set a password in its configuration"},
    {"ERR DB index", absl::StatusCode::kFailedPrecondition, kDatabaseAdvice},
    {"ERR invalid DB index", absl::StatusCode::kFailedPrecondition, kDatabaseAdvice},
    {"ERR SELECT is not allowed", absl::StatusCode::kFailedPrecondition, kClusterAdvice},
    {"MOVED", absl::StatusCode::kFailedPrecondition, kClusterAdvice},
    {"CROSSSLOT", absl::StatusCode::kFailedPrecondition, kClusterAdvice},
    {"CLUSTERDOWN", absl::StatusCode::kFailedPrecondition, kClusterAdvice},
    {"READONLY", absl::StatusCode::kFailedPrecondition, kPrimaryAdvice},
    {"MASTERDOWN", absl::StatusCode::kFailedPrecondition, kPrimaryAdvice},
    {"NOREPLICAS", absl::StatusCode::kFailedPrecondition, "the server waits for its replicas"},
    {"MISCONF", absl::StatusCode::kFailedPrecondition,
     "the server cannot save to its disk: see its log"},
    {"OOM", absl::StatusCode::kResourceExhausted,
     "the server's memory is full: raise its maxmemory, or remove keys"},
    {"LOADING", absl::StatusCode::kUnavailable, "the server is loading its data"},
    {"BUSY", absl::StatusCode::kUnavailable, "the server is busy with a script"},
    {"TRYAGAIN", absl::StatusCode::kUnavailable, ""},
    {"ERR max number of clients", absl::StatusCode::kUnavailable,
     "the server has too many clients: raise its maxclients"},
};

using Reader = std::unique_ptr<redisReader, decltype(&redisReaderFree)>;
using Parsed = std::unique_ptr<redisReply, decltype(&freeReplyObject)>;

// Returns the beginning of a server's text, with characters that cannot be printed replaced.
std::string printable(absl::string_view text) {
  constexpr size_t kMost = 160;
  std::string shown(text.substr(0, kMost));
  for (char& letter : shown) {
    if (!absl::ascii_isprint(static_cast<unsigned char>(letter))) letter = '?';
  }
  return text.size() > kMost ? shown + "..." : shown;
}

absl::Status not_redis(absl::string_view what, absl::string_view said) {
  return absl::DataLossError(absl::StrCat(what, " ('", printable(said),
                                          "'); is this a Redis server, and not another program?"));
}

absl::StatusOr<std::string> encoded(const std::vector<absl::string_view>& words) {
  std::vector<const char*> texts;
  std::vector<size_t> sizes;
  for (const absl::string_view word : words) {
    texts.push_back(word.data());
    sizes.push_back(word.size());
  }
  char* bytes = nullptr;
  const auto count = static_cast<int>(words.size());
  const auto length = redisFormatCommandArgv(&bytes, count, texts.data(), sizes.data());
  if (length < 0) return absl::ResourceExhaustedError("there is no memory for the command");
  std::string command(bytes, static_cast<size_t>(length));
  redisFreeCommand(bytes);
  return command;
}

}  // namespace

absl::StatusOr<RedisConnection> RedisConnection::open(const RedisUrl& url, Nanos deadline) {
  auto stream = url.socket_path.empty() ? Stream::to_host(url.host, url.port, deadline)
                                        : Stream::to_socket(url.socket_path, deadline);
  // The error concerns this process, not the server.
  if (absl::IsResourceExhausted(stream.status())) return stream.status();
  if (!stream.ok()) {
    return absl::Status(stream.status().code(),
                        absl::StrCat(stream.status().message(),
                                     "; is a Redis server running there, and is the address in the"
                                     " store's URL right?"));
  }
  RedisConnection connection(*std::move(stream), url.password);
  if (absl::Status status = connection.log_in(url, deadline); !status.ok()) return status;
  return connection;
}

absl::Status RedisConnection::log_in(const RedisUrl& url, Nanos deadline) {
  if (!url.password.empty()) {
    std::vector<absl::string_view> words{"AUTH"};
    if (!url.user.empty()) words.emplace_back(url.user);
    words.emplace_back(url.password);
    if (const auto reply = command(words, deadline); !reply.ok()) return reply.status();
  }
  if (url.database != 0) {
    const auto reply = command({"SELECT", std::to_string(url.database)}, deadline);
    if (!reply.ok()) return reply.status();
  }
  return absl::OkStatus();
}

absl::StatusOr<RedisReply> RedisConnection::command(const std::vector<absl::string_view>& words,
                                                    Nanos deadline) {
  const auto bytes = encoded(words);
  if (!bytes.ok()) return bytes.status();
  // The connection counts as broken until the whole answer is there: the rest of an answer would be
  // taken for the answer to the next command.
  broken_ = true;
  absl::Status status = stream_.send(*bytes, deadline);
  if (!status.ok()) return status;
  return receive(deadline);
}

absl::StatusOr<RedisReply> RedisConnection::receive(Nanos deadline) {
  const Reader reader(redisReaderCreate(), &redisReaderFree);
  if (reader == nullptr) return absl::ResourceExhaustedError("there is no memory for the answer");
  std::array<char, 16 << 10> buffer;
  void* object = nullptr;
  for (size_t total = 0; object == nullptr;) {
    const auto received = stream_.receive(absl::MakeSpan(buffer), deadline);
    if (absl::IsDeadlineExceeded(received.status())) {
      return absl::DeadlineExceededError(
          "the server gave no answer in time; is this a Redis server, and is it overloaded?");
    }
    if (!received.ok()) return received.status();
    const absl::string_view bytes(buffer.data(), *received);
    // None of our commands is answered by an array, for which hiredis would allocate what the
    // server asks for.
    if (total == 0 && !absl::StrContains("+-:$", bytes[0])) {
      return not_redis("the server gave an answer that Redis would not give", bytes);
    }
    total += bytes.size();
    if (total > kMaxReply) {
      return absl::DataLossError(
          absl::StrCat("the server gave an answer of more than ", kMaxReply, " bytes"));
    }
    if (redisReaderFeed(reader.get(), bytes.data(), bytes.size()) != REDIS_OK ||
        redisReaderGetReply(reader.get(), &object) != REDIS_OK) {
      return not_redis(absl::StrCat("the server gave a malformed answer: ", reader->errstr), bytes);
    }
  }
  const Parsed parsed(static_cast<redisReply*>(object), &freeReplyObject);
  if (reader->pos != reader->len) {
    return not_redis("the server gave more than one answer to one command",
                     {reader->buf + reader->pos, reader->len - reader->pos});
  }
  broken_ = false;
  switch (parsed->type) {
    case REDIS_REPLY_STATUS:
      return RedisReply{RedisReply::Kind::kStatus, std::string(parsed->str, parsed->len), 0};
    case REDIS_REPLY_STRING:
      return RedisReply{RedisReply::Kind::kString, std::string(parsed->str, parsed->len), 0};
    case REDIS_REPLY_INTEGER:
      return RedisReply{RedisReply::Kind::kInteger, std::string(), parsed->integer};
    case REDIS_REPLY_NIL:
      return RedisReply{};
    default:
      return refusal({parsed->str, parsed->len});
  }
}

absl::Status RedisConnection::refusal(absl::string_view text) const {
  // A server that does not know AUTH repeats its arguments in the error.
  std::string shown(text);
  if (!password_.empty()) shown = absl::StrReplaceAll(shown, {{password_, "***"}});
  for (const Refusal& known : kRefusals) {
    if (!absl::StartsWith(text, known.begin)) continue;
    return absl::Status(known.code, absl::StrCat("the server says '", printable(shown), "'",
                                                 known.advice.empty() ? "" : "; ", known.advice));
  }
  return absl::InvalidArgumentError(absl::StrCat("the server says '", printable(shown), "'"));
}

}  // namespace nezha
