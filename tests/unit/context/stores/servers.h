// SPDX-License-Identifier: Apache-2.0
// Servers for the tests of the Redis store: real ones, and ones with scripted answers.
#pragma once

#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "common/clock.h"
#include "context/stores/redis_connection.h"

namespace nezha {

constexpr Nanos kPatience = 30 * kSecond;

// Waits until `test` is true; false if that takes too long.
inline bool await(const std::function<bool()>& test) {
  for (const Nanos deadline = now() + kPatience; !test();) {
    if (now() > deadline) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return true;
}

class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string name = "/tmp/nezha-test.XXXXXX";
    if (mkdtemp(name.data()) == nullptr) throw std::runtime_error("mkdtemp");
    path_ = name;
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  std::string file(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

// A redis-server (Debian: redis-server) of the test's own, which loses its data when it is killed.
// It listens on a Unix socket and, if `tcp` is set, on a port of 127.0.0.1.
class RedisServer {
 public:
  explicit RedisServer(std::vector<std::string> options = {}, bool tcp = false)
      : options_(std::move(options)), tcp_(tcp) {
    start();
  }
  ~RedisServer() { kill(); }
  RedisServer(const RedisServer&) = delete;
  RedisServer& operator=(const RedisServer&) = delete;

  // Returns when the server accepts connections. The server ends with the thread that calls this.
  void start() {
    // Another process may take the free port before the server binds it.
    for (int attempt = 0; attempt < 5; ++attempt) {
      if (tcp_ && port_ == 0) port_ = free_port();
      spawn();
      if (await([&] { return has_ended() || answers(); }) && pid_ > 0) return;
      port_ = 0;
    }
    throw std::runtime_error("redis-server does not start (Debian: apt install redis-server)");
  }

  void kill() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
    pid_ = -1;
  }

  int port() const { return port_; }
  std::string socket() const { return folder_.file("redis.sock"); }
  // A URL with these credentials ("user:password@") and options ("prefix=a&ttl=1s").
  std::string url(const std::string& options = "", const std::string& credentials = "") const {
    return "redis+unix://" + credentials + socket() + "?" + options;
  }

  // The answer to a command that does not go through the store.
  absl::StatusOr<RedisReply> ask(const std::vector<absl::string_view>& words,
                                 const std::string& credentials = "") const {
    const Nanos deadline = now() + kPatience;
    auto connection = RedisConnection::open(*RedisUrl::parse(url("", credentials)), deadline);
    if (!connection.ok()) return connection.status();
    return connection->command(words, deadline);
  }

 private:
  static int free_port() {
    const net::Socket probe(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    auto* generic = reinterpret_cast<sockaddr*>(&address);
    if (bind(probe.fd(), generic, size) != 0 || getsockname(probe.fd(), generic, &size) != 0) {
      throw std::runtime_error("no free port");
    }
    return ntohs(address.sin_port);
  }

  void spawn() {
    std::vector<std::string> words{
        "redis-server", "--bind", "127.0.0.1",      "--port",    std::to_string(port_),
        "--unixsocket", socket(), "--save",         "",          "--appendonly",
        "no",           "--dir",  folder_.file(""), "--logfile", folder_.file("log")};
    words.insert(words.end(), options_.begin(), options_.end());
    std::vector<char*> argv;
    argv.reserve(words.size() + 1);
    for (std::string& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    const pid_t parent = getpid();
    pid_ = fork();
    if (pid_ == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (getppid() == parent) execvp(argv[0], argv.data());
      _exit(127);
    }
  }

  bool has_ended() {
    if (waitpid(pid_, nullptr, WNOHANG) == 0) return false;
    pid_ = -1;
    return true;
  }

  // Any answer counts, because the server may want a password.
  bool answers() const {
    const auto reply = ask({"PING"});
    return reply.ok() || absl::IsPermissionDenied(reply.status());
  }

  const std::vector<std::string> options_;
  const bool tcp_;
  const TemporaryFolder folder_;
  int port_ = 0;
  pid_t pid_ = -1;
};

// Gives these answers whatever the command: one for each command, and the last one repeatedly. It
// sends nothing for an empty answer; kHangUp closes the connection.
class FakeServer {
 public:
  static constexpr const char* kHangUp = "hang up";

  explicit FakeServer(std::vector<std::string> answers)
      : answers_(std::move(answers)), stop_(eventfd(0, EFD_CLOEXEC)) {
    listener_ = net::Socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    socket().copy(address.sun_path, sizeof address.sun_path - 1);
    if (bind(listener_.fd(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0 ||
        listen(listener_.fd(), 100) != 0) {
      throw std::runtime_error("cannot listen on " + socket());
    }
    thread_ = std::thread([this] { serve(); });
  }
  ~FakeServer() {
    const uint64_t one = 1;
    if (write(stop_.fd(), &one, sizeof one) == sizeof one) thread_.join();
  }
  FakeServer(const FakeServer&) = delete;
  FakeServer& operator=(const FakeServer&) = delete;

  std::string socket() const { return folder_.file("fake.sock"); }
  std::string url(const std::string& options = "", const std::string& credentials = "") const {
    return "redis+unix://" + credentials + socket() + "?" + options;
  }

 private:
  void serve() {
    std::vector<net::Socket> clients;
    while (true) {
      std::vector<pollfd> entries{{stop_.fd(), POLLIN, 0}, {listener_.fd(), POLLIN, 0}};
      for (const auto& client : clients) entries.push_back({client.fd(), POLLIN, 0});
      poll(entries.data(), entries.size(), -1);
      if (entries[0].revents != 0) return;
      for (size_t i = clients.size(); i-- > 0;) {
        if (entries[i + 2].revents != 0 && !answer(clients[i])) {
          clients.erase(clients.begin() + static_cast<ptrdiff_t>(i));
        }
      }
      if (entries[1].revents != 0) clients.emplace_back(accept(listener_.fd(), nullptr, nullptr));
    }
  }

  bool answer(const net::Socket& client) {
    std::array<char, 4096> command;
    if (::recv(client.fd(), command.data(), command.size(), 0) <= 0) return false;
    const std::string& text = answers_[std::min(given_++, answers_.size() - 1)];
    if (text == kHangUp) return false;
    ::send(client.fd(), text.data(), text.size(), MSG_NOSIGNAL);
    return true;
  }

  const std::vector<std::string> answers_;
  const TemporaryFolder folder_;
  net::Socket listener_;
  net::Socket stop_;
  size_t given_ = 0;
  std::thread thread_;
};

}  // namespace nezha
