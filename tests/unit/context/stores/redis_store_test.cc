// SPDX-License-Identifier: Apache-2.0
#include "nezha/redis_store.h"

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "nezha/errors.h"
#include "tests/unit/context/stores/servers.h"

namespace nezha {
namespace {

using std::chrono::milliseconds;

std::vector<char> bytes(const std::string& text) { return {text.begin(), text.end()}; }

// The text of an exception of this type; the test fails if there is none.
template <typename Error>
std::string error_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  } catch (const std::exception& error) {
    ADD_FAILURE() << "another exception: " << error.what();
    return "";
  }
  ADD_FAILURE() << "no exception";
  return "";
}

void expect_texts(const std::string& message, const std::vector<std::string>& texts) {
  for (const std::string& text : texts) {
    EXPECT_NE(message.find(text), std::string::npos) << "no '" << text << "' in: " << message;
  }
}

int64_t integer(const RedisServer& server, const std::vector<absl::string_view>& words) {
  const auto reply = server.ask(words);
  EXPECT_TRUE(reply.ok()) << reply.status();
  return reply.ok() ? reply->integer : -100;
}

TEST(RedisStore, KeepsWhatIsSet) {
  const RedisServer server;
  RedisStore one(server.url());
  RedisStore other(server.url());
  const std::vector<char> odd = bytes(std::string("a\r\nb\0c \xff", 8));
  one.set("odd", odd);
  one.set("empty", {});
  one.set("a key/with :all& kinds\n", bytes("1"));
  EXPECT_EQ(other.get("odd"), odd);
  EXPECT_EQ(other.get("empty"), bytes(""));
  EXPECT_EQ(other.get("a key/with :all& kinds\n"), bytes("1"));
  std::vector<char> large(RedisStore::kMaxValue);
  for (size_t i = 0; i < large.size(); ++i) large[i] = static_cast<char>(i * 7);
  one.set("large", large);
  EXPECT_EQ(other.get("large"), large);
  one.wait({"odd", "empty", "large"});
  one.wait({}, milliseconds(1));
}

TEST(RedisStore, GoesByTcpToo) {
  const RedisServer server({}, /*tcp=*/true);
  const std::string port = std::to_string(server.port());
  for (const std::string host : {"127.0.0.1", "localhost"}) {
    std::string url = "redis://";
    url.append(host).append(":").append(port).append("/1?prefix=").append(host);
    RedisStore store(url);
    store.set("key", bytes("value"));
    EXPECT_EQ(store.get("key"), bytes("value"));
  }
  const std::string message =
      error_of<TimeoutError>([&] { RedisStore("redis://[::1]:" + port + "?timeout=500ms"); });
  expect_texts(message, {"[::1]:" + port, "opening the store: connecting: Connection refused",
                         "is a Redis server running there"});
}

TEST(RedisStore, KeysOfDifferentPrefixesOrDatabasesAreSeparate) {
  const RedisServer server;
  RedisStore one(server.url("prefix=one"));
  RedisStore two(server.url("prefix=two"));
  RedisStore three(server.url("prefix=one&database=3"));
  one.set("key", bytes("1"));
  two.set("key", bytes("2"));
  three.set("key", bytes("3"));
  EXPECT_EQ(one.get("key"), bytes("1"));
  EXPECT_EQ(two.get("key"), bytes("2"));
  EXPECT_EQ(three.get("key"), bytes("3"));
  EXPECT_EQ(server.ask({"GET", "one/key"})->text, "1");
}

TEST(RedisStore, WaitsForAnotherRank) {
  const RedisServer server;
  RedisStore store(server.url());
  std::jthread other([&] {
    RedisStore mine(server.url());
    mine.set("a", bytes("1"));
    mine.set("b", bytes("2"));
    store.wait({"done"});  // because the keys are deleted with the store
  });
  EXPECT_EQ(store.get("a"), bytes("1"));
  store.wait({"b", "a"}, milliseconds(kPatience / kMillisecond));
  store.set("done", {});
  other.join();
}

TEST(RedisStore, AWaitThatFailsNamesTheKeysThatAreMissing) {
  const RedisServer server;
  RedisStore store(server.url("prefix=run7"));
  store.set("rank0", bytes("0"));
  const Nanos begin = now();
  const std::string message = error_of<TimeoutError>([&] {
    store.wait({"rank0", "rank1", "rank2"}, milliseconds(1000));
  });
  EXPECT_LT(now() - begin, kPatience);
  expect_texts(message, {server.socket(), "1000 ms", "'run7/rank1', 'run7/rank2'", "prefix"});
  EXPECT_EQ(message.find("rank0"), std::string::npos);

  std::vector<std::string> many;
  many.reserve(1000);
  for (int i = 0; i < 1000; ++i) many.push_back("many" + std::to_string(i));
  const std::string of_many = error_of<TimeoutError>([&] { store.wait(many, milliseconds(200)); });
  expect_texts(of_many, {"many0", "and up to 936 more"});
}

TEST(RedisStore, ManyKeysAreWaitedFor) {
  const RedisServer server;
  RedisStore store(server.url());
  std::vector<std::string> many;
  many.reserve(200);
  for (int i = 0; i < 200; ++i) many.push_back("many" + std::to_string(i));
  std::jthread other([&] {
    for (size_t i = many.size(); i-- > 0;) store.set(many[i], bytes("x"));
  });
  store.wait(many, milliseconds(kPatience / kMillisecond));
  other.join();
}

TEST(RedisStore, AKeyIsWrittenOnce) {
  const RedisServer server;
  RedisStore one(server.url());
  {
    RedisStore other(server.url());
    one.set("key", bytes("1"));
    one.set("key", bytes("1"));
    for (RedisStore* store : {&one, &other}) {
      const std::string message = error_of<IoError>([&] { store->set("key", bytes("2")); });
      expect_texts(message, {"nezha/key", "another value", "prefix"});
    }
    EXPECT_EQ(one.get("key"), bytes("1"));
  }
  EXPECT_EQ(one.get("key"), bytes("1")) << "the other one has removed what it had not set";
}

TEST(RedisStore, KeysExpire) {
  const RedisServer server;
  RedisStore day(server.url("prefix=day"));
  RedisStore second(server.url("prefix=second&ttl=1s"));
  day.set("key", bytes("1"));
  second.set("key", bytes("1"));
  const int64_t day_ms = int64_t{24} * 3600 * 1000;
  EXPECT_GT(integer(server, {"PTTL", "day/key"}), day_ms - 600'000);
  EXPECT_LE(integer(server, {"PTTL", "day/key"}), day_ms);
  EXPECT_TRUE(await([&] { return integer(server, {"EXISTS", "second/key"}) == 0; }));
  // After its expiry the key may belong to another run, and this store leaves it alone.
  EXPECT_TRUE(server.ask({"SET", "second/key", "2"}).ok());
}

TEST(RedisStore, DeletesItsKeysAtTheEnd) {
  const RedisServer server;
  RedisStore stays(server.url());
  stays.set("stays", bytes("1"));
  {
    RedisStore goes(server.url("ttl=1h"));
    goes.set("a", bytes("1"));
    goes.set("b", bytes("2"));
    goes.set("changed", bytes("3"));
    EXPECT_EQ(integer(server, {"DBSIZE"}), 4);
    EXPECT_TRUE(server.ask({"SET", "nezha/changed", "another's"}).ok());
  }
  EXPECT_EQ(integer(server, {"DBSIZE"}), 2);
  EXPECT_EQ(integer(server, {"EXISTS", "nezha/stays", "nezha/changed"}), 2);
}

TEST(RedisStore, TheEndIsNotHeldUpByAServerThatIsGone) {
  RedisServer server;
  auto store = std::make_unique<RedisStore>(server.url());
  store->set("key", bytes("1"));
  server.kill();
  const Nanos begin = now();
  store.reset();
  EXPECT_LT(now() - begin, kPatience);
}

// ---- Refusals ----------------------------------------------------------------------------------

TEST(RedisStore, APasswordOpensTheServer) {
  const RedisServer server(
      {"--requirepass", "s3cret/@", "--user", "ann", "on", ">hunter2", "~*", "+@all"});
  for (const std::string credentials :
       {":s3cret%2F%40@", "default:s3cret%2F%40@", "ann:hunter2@"}) {
    RedisStore store(server.url("", credentials));
    store.set("key", bytes("1"));
    EXPECT_EQ(store.get("key"), bytes("1"));
  }
}

TEST(RedisStore, AWrongPasswordIsAnErrorThatDoesNotShowIt) {
  const RedisServer server(
      {"--requirepass", "s3cret", "--user", "bob", "on", ">hunter2", "~*", "+get"});
  for (const std::string credentials : {"", ":s4cret@", "ann:s4cret@"}) {
    const Nanos begin = now();
    const std::string message =
        error_of<IoError>([&] { RedisStore(server.url("timeout=1h", credentials)); });
    EXPECT_LT(now() - begin, kPatience) << "trying again is no use";
    expect_texts(message,
                 {server.socket(), "opening the store", "give the right user and password"});
    EXPECT_EQ(message.find("s4cret"), std::string::npos) << message;
  }
  expect_texts(error_of<IoError>([&] { RedisStore(server.url("", "bob:hunter2@")); }),
               {"NOPERM", "let the user have the commands"});
}

TEST(RedisStore, APasswordForAServerThatHasNoneIsAnError) {
  const RedisServer server;
  const std::string message = error_of<IoError>([&] { RedisStore(server.url("", ":s4cret@")); });
  expect_texts(message, {"give none in the store's URL"});
  EXPECT_EQ(message.find("s4cret"), std::string::npos) << message;
}

TEST(RedisStore, ADatabaseThatIsNotThereIsAnError) {
  const RedisServer server({"--databases", "4"});
  RedisStore last(server.url("database=3"));
  expect_texts(error_of<IoError>([&] { RedisStore(server.url("database=4")); }),
               {server.socket(), "no such database"});
}

TEST(RedisStore, AFullServerIsAnError) {
  const RedisServer server({"--maxmemory", "1", "--maxmemory-policy", "noeviction"});
  RedisStore store(server.url());
  expect_texts(error_of<IoError>([&] { store.set("key", bytes("1")); }),
               {server.socket(), "nezha/key", "memory is full", "maxmemory"});
}

TEST(RedisStore, BadArgumentsAreRefused) {
  const RedisServer server;
  error_of<InvalidArgument>([] { RedisStore("redis:/nowhere"); });
  RedisStore store(server.url());
  expect_texts(error_of<InvalidArgument>(
                   [&] { store.set("key", std::vector<char>(RedisStore::kMaxValue + 1)); }),
               {"nezha/key", std::to_string(RedisStore::kMaxValue)});
  error_of<InvalidArgument>([&] { store.set("", {}); });
  error_of<InvalidArgument>([&] { store.set(std::string(RedisStore::kMaxKey + 1, 'k'), {}); });
  error_of<InvalidArgument>([&] { store.wait({"key"}, milliseconds(0)); });
  error_of<InvalidArgument>([&] { store.wait({"key"}, milliseconds(-1)); });
  EXPECT_EQ(integer(server, {"DBSIZE"}), 0);
}

// ---- Servers that fail -------------------------------------------------------------------------

TEST(RedisStore, ARestartIsSurvivedAndWhatWasLostIsSetAgain) {
  RedisServer server;
  RedisStore one(server.url());
  RedisStore other(server.url());
  one.set("before", bytes("1"));
  server.kill();
  server.start();  // with no keys
  one.set("after", bytes("2"));
  EXPECT_EQ(other.get("before"), bytes("1"));
  EXPECT_EQ(other.get("after"), bytes("2"));
}

TEST(RedisStore, AWaitGoesOnThroughARestart) {
  RedisServer server;
  RedisStore one(server.url());
  std::optional<std::vector<char>> got;
  std::jthread waiting([&] {
    RedisStore other(server.url());
    other.set("waiting", {});
    got = other.get("late");
  });
  one.wait({"waiting"});
  server.kill();
  server.start();
  one.wait({"waiting"});  // `other` asks again, and so sets its lost key again
  one.set("late", bytes("2"));
  waiting.join();
  EXPECT_EQ(got, bytes("2"));
}

TEST(RedisStore, AServerThatStartsLateIsWaitedFor) {
  RedisServer server;
  server.kill();
  std::jthread early([url = server.url("timeout=30s")] { RedisStore(url).set("key", {}); });
  server.start();
}

TEST(RedisStore, AServerThatStaysAwayIsATimeout) {
  RedisServer server;
  RedisStore store(server.url("timeout=500ms"));
  server.kill();
  expect_texts(error_of<TimeoutError>([&] { store.set("key", {}); }),
               {server.socket(), "nezha/key", "is a Redis server running there"});
  expect_texts(error_of<TimeoutError>([&] { store.wait({"other"}, milliseconds(500)); }),
               {"nezha/other", "is a Redis server running there"});
}

TEST(RedisStore, ASilentServerIsATimeout) {
  const FakeServer server({""});
  const Nanos begin = now();
  expect_texts(error_of<TimeoutError>([&] { RedisStore(server.url("timeout=500ms")); }),
               {server.socket(), "no answer in time"});
  EXPECT_GE(now() - begin, 500 * kMillisecond);
  const FakeServer once({":0\r\n", ""});
  RedisStore store(once.url("timeout=500ms"));
  expect_texts(error_of<TimeoutError>([&] { store.set("key", {}); }), {"nezha/key", "no answer"});
  expect_texts(error_of<TimeoutError>([&] {
                 store.wait({"a", "b"}, milliseconds(700));
               }),
               {"'nezha/a', 'nezha/b'", "700 ms"});
}

TEST(RedisStore, AServerThatLoadsItsDataIsWaitedFor) {
  const std::string loading = "-LOADING Redis is loading the dataset in memory\r\n";
  const FakeServer server({loading, FakeServer::kHangUp, loading, ":0\r\n", "+OK\r\n"});
  RedisStore store(server.url());
  store.set("key", {});
  const FakeServer always({loading});
  expect_texts(error_of<TimeoutError>([&] { RedisStore(always.url("timeout=500ms")); }),
               {always.socket(), "loading its data"});
}

TEST(RedisStore, GarbageIsAnError) {
  for (const std::string text : {"HTTP/1.1 400 Bad Request\r\n\r\n", "+what\r\n", "$-1\r\n"}) {
    const FakeServer server({text});
    expect_texts(error_of<IoError>([&] { RedisStore(server.url()); }),
                 {server.socket(), "is this a Redis server"});
  }
  // The reply type fits the greeting and none of the other commands.
  const FakeServer numbers({":1\r\n"});
  RedisStore store(numbers.url());
  expect_texts(error_of<IoError>([&] { store.set("key", {}); }),
               {"nezha/key", "did not answer with OK"});
  expect_texts(error_of<IoError>([&] { store.get("key"); }),
               {"nezha/key", "did not answer with a value"});
}

TEST(RedisStore, AnAnswerThatIsLostIsNoConflict) {
  // The store sets the key, loses the connection and repeats the command. The key then exists, with
  // this very value.
  const FakeServer server({":0\r\n", FakeServer::kHangUp, "$-1\r\n", "$-1\r\n", "$4\r\nmine\r\n"});
  RedisStore store(server.url());
  store.set("key", bytes("mine"));
}

// ---- Threads -----------------------------------------------------------------------------------

TEST(RedisStore, ThreadsMayShareIt) {
  const RedisServer server;
  RedisStore store(server.url());
  std::vector<std::thread> threads;
  threads.reserve(4);
  for (int thread = 0; thread < 4; ++thread) {
    threads.emplace_back([&store, thread] {
      const auto key = [](int of, int i) {
        return "key" + std::to_string(of) + "." + std::to_string(i);
      };
      for (int i = 0; i < 50; ++i) {
        store.set(key(thread, i), bytes(key(thread, i)));
        EXPECT_EQ(store.get(key((thread + 1) % 4, i)), bytes(key((thread + 1) % 4, i)));
      }
    });
  }
  for (auto& thread : threads) thread.join();
}

// A child of fork() leaves its parent's keys and connection alone, and may open a store of its own.
TEST(RedisStore, AChildOfForkMustOpenItsOwn) {
  const RedisServer server;
  auto store = std::make_unique<RedisStore>(server.url());
  store->set("key", bytes("parent's"));
  const pid_t child = fork();
  if (child == 0) {
    const bool refused =
        error_of<InvalidArgument>([&] { store->get("key"); }).find("fork()") != std::string::npos;
    store.reset();
    RedisStore own(server.url());
    const bool there = own.get("key") == bytes("parent's");
    own.set("other key", bytes("child's"));
    _exit(refused && there ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(store->get("key"), bytes("parent's"));
  EXPECT_EQ(store->get("other key"), bytes("child's"));
}

}  // namespace
}  // namespace nezha
