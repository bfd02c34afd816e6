// SPDX-License-Identifier: Apache-2.0
#include "context/stores/redis_connection.h"

#include <random>
#include <string>
#include <utility>

#include "gtest/gtest.h"
#include "tests/unit/context/stores/servers.h"

namespace nezha {
namespace {

absl::StatusOr<RedisReply> answer_of(const FakeServer& server, Nanos timeout = kPatience) {
  auto connection = RedisConnection::open(*RedisUrl::parse(server.url()), now() + timeout);
  if (!connection.ok()) return connection.status();
  auto reply = connection->command({"GET", "key"}, now() + timeout);
  const bool is_refusal = reply.status().message().find("the server says") != std::string::npos;
  EXPECT_EQ(connection->is_broken(), !reply.ok() && !is_refusal) << reply.status();
  return reply;
}

TEST(RedisConnection, TakesTheAnswersOfTheProtocol) {
  const FakeServer server({"+OK\r\n", ":-42\r\n"});
  EXPECT_EQ(answer_of(server)->text, "OK");
  EXPECT_EQ(answer_of(server)->integer, -42);
}

TEST(RedisConnection, TakesAnyBytesOfAValue) {
  const std::string value("a\r\nb\0", 5);
  const FakeServer server({"$5\r\n" + value + "\r\n", "$0\r\n\r\n", "$-1\r\n"});
  EXPECT_EQ(answer_of(server)->text, value);
  const auto empty = answer_of(server);
  EXPECT_EQ(empty->kind, RedisReply::Kind::kString);
  EXPECT_EQ(empty->text, "");
  EXPECT_EQ(answer_of(server)->kind, RedisReply::Kind::kNil);
}

TEST(RedisConnection, WhatIsNoAnswerIsRefused) {
  for (const std::string text :
       {"HTTP/1.1 400 Bad Request\r\n\r\n", "\r\n", "*1\r\n$1\r\na\r\n", "*1073741823\r\n",
        ":12a\r\n", "$99999999999999999999\r\n", "$-2\r\n", "+OK\r\n+OK\r\n", "%1\r\n"}) {
    const FakeServer server({text});
    const auto reply = answer_of(server);
    EXPECT_TRUE(absl::IsDataLoss(reply.status())) << text << ": " << reply.status();
    EXPECT_NE(reply.status().message().find("is this a Redis server"), std::string::npos);
  }
}

TEST(RedisConnection, AnAnswerWithoutEndIsCutOff) {
  // Without a limit, the reader would wait for all of the answer and keep it.
  const FakeServer server({"$536870912\r\n" + std::string(RedisConnection::kMaxReply, 'x')});
  const auto reply = answer_of(server);
  EXPECT_TRUE(absl::IsDataLoss(reply.status())) << reply.status();
  const FakeServer line({"+" + std::string(RedisConnection::kMaxReply, 'x')});
  EXPECT_TRUE(absl::IsDataLoss(answer_of(line).status()));
}

TEST(RedisConnection, RandomBytesAreRefusedOrMakeSense) {
  std::mt19937_64 random(11);
  constexpr char kLetters[] = "+-:$*\r\n0123456789-xOK";
  std::vector<std::string> answers;
  for (int i = 0; i < 300; ++i) {
    std::string text;
    for (uint64_t left = 1 + random() % 30; left > 0; --left) {
      text += kLetters[random() % (sizeof kLetters - 1)];
    }
    answers.push_back(text);
  }
  const FakeServer server(answers);
  for (size_t i = 0; i < answers.size(); ++i) {
    const auto reply = answer_of(server, 20 * kMillisecond);
    EXPECT_TRUE(reply.ok() || !reply.status().message().empty());
  }
}

TEST(RedisConnection, SilenceEndsAtTheDeadline) {
  const FakeServer server({""});
  const Nanos begin = now();
  EXPECT_TRUE(absl::IsDeadlineExceeded(answer_of(server, 50 * kMillisecond).status()));
  EXPECT_GE(now() - begin, 50 * kMillisecond);
}

TEST(RedisConnection, TheServersErrorsSayWhatToDo) {
  const std::tuple<std::string, absl::StatusCode, std::string> cases[] = {
      {"-NOAUTH Authentication required.\r\n", absl::StatusCode::kPermissionDenied, "password"},
      {"-NOPERM this user\r\n", absl::StatusCode::kPermissionDenied, "EXISTS"},
      {"-LOADING Redis is loading\r\n", absl::StatusCode::kUnavailable, "loading"},
      {"-ERR max number of clients reached\r\n", absl::StatusCode::kUnavailable, "maxclients"},
      {"-READONLY You can't write\r\n", absl::StatusCode::kFailedPrecondition, "primary"},
      {"-MOVED 1 10.0.0.1:1\r\n", absl::StatusCode::kFailedPrecondition, "Cluster"},
      {"-OOM command not allowed\r\n", absl::StatusCode::kResourceExhausted, "maxmemory"},
      {"-ERR what\r\n", absl::StatusCode::kInvalidArgument, "'ERR what'"},
      {"-\r\n", absl::StatusCode::kInvalidArgument, "the server says ''"},
      {"-ERR \x1b[31m\x01\r\n", absl::StatusCode::kInvalidArgument, "'ERR ?[31m?'"},
      {"-ERR " + std::string(5000, 'x') + "\r\n", absl::StatusCode::kInvalidArgument, "xxx..."},
  };
  for (const auto& [text, code, advice] : cases) {
    const FakeServer server({text});
    const auto reply = answer_of(server);
    EXPECT_EQ(reply.status().code(), code) << text;
    EXPECT_NE(reply.status().message().find(advice), std::string::npos) << reply.status();
    EXPECT_LT(reply.status().message().size(), 400u);
  }
}

TEST(RedisConnection, AServerThatRepeatsThePasswordIsNotQuoted) {
  const FakeServer server({"-ERR unknown command `AUTH`, with args beginning with: `s3cret`\r\n"});
  const auto url = RedisUrl::parse(server.url("", ":s3cret@"));
  const auto connection = RedisConnection::open(*url, now() + kPatience);
  EXPECT_NE(connection.status().message().find("unknown command"), std::string::npos);
  EXPECT_EQ(connection.status().message().find("s3cret"), std::string::npos);
}

}  // namespace
}  // namespace nezha
