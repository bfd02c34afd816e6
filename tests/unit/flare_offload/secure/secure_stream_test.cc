// SPDX-License-Identifier: Apache-2.0
#include "flare_offload/secure/secure_stream.h"

#include <gtest/gtest.h>
#include <openssl/evp.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

namespace nezha::flare {
namespace {

Secret secret_of(unsigned char byte) {
  Secret secret{};
  secret.fill(byte);
  return secret;
}

// The two ends of a connection, and the messages that each has received.
class Pair {
 public:
  Pair(const Secret& client, const Secret& server,
       SecureStream::Service meant = SecureStream::Service::kManager,
       const std::string& name = "") {
    int fds[2] = {};
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds), 0);
    ends_[0] =
        *SecureStream::over(net::Socket(fds[0]), SecureStream::Role::kClient, meant, client, name);
    ends_[1] = *SecureStream::over(net::Socket(fds[1]), SecureStream::Role::kServer,
                                   SecureStream::Service::kManager, server);
  }

  SecureStream& client() { return *ends_[0]; }
  SecureStream& server() { return *ends_[1]; }

  absl::Status drive(int end) {
    return ends_[end]->drive([&](const std::string& message) { got[end].push_back(message); });
  }
  // Drives both ends in turn for a number of rounds, or until one fails.
  absl::Status drive_all() {
    for (int round = 0; round < 50; ++round) {
      for (const int end : {0, 1}) {
        if (absl::Status status = drive(end); !status.ok()) return status;
      }
    }
    return absl::OkStatus();
  }

  std::vector<std::string> got[2];

 private:
  std::unique_ptr<SecureStream> ends_[2];
};

TEST(SecureStreamTest, CarriesMessagesBothWays) {
  Pair pair(secret_of(1), secret_of(1));
  const std::string longest(SecureStream::kMaxMessage, 'x');
  pair.client().send("hello");
  pair.client().send("");
  pair.server().send(longest);
  for (int i = 0; i < 40; ++i) ASSERT_TRUE(pair.drive_all().ok());
  EXPECT_TRUE(pair.client().is_proven());
  EXPECT_TRUE(pair.server().is_proven());
  EXPECT_EQ(pair.got[1], (std::vector<std::string>{"hello", ""}));
  EXPECT_EQ(pair.got[0], std::vector<std::string>{longest});
}

// A client that wants a switch is refused by a manager, although both have the secret.
TEST(SecureStreamTest, RefusesAClientOfAnotherService) {
  Pair pair(secret_of(1), secret_of(1), SecureStream::Service::kSwitch);
  pair.client().send("install");
  EXPECT_FALSE(pair.drive_all().ok());
  EXPECT_FALSE(pair.client().is_proven());
  EXPECT_FALSE(pair.server().is_proven());
  EXPECT_TRUE(pair.got[1].empty());
}

// If a message arrives in the same read as the end of the handshake, the stream delivers it at
// once. There might be no later read.
TEST(SecureStreamTest, HandsOverWhatComesWithTheEndOfTheHandshake) {
  Pair pair(secret_of(1), secret_of(1));
  pair.client().send("at once");
  ASSERT_TRUE(pair.drive(0).ok());
  ASSERT_TRUE(pair.drive(1).ok());
  ASSERT_TRUE(pair.drive(0).ok());
  ASSERT_TRUE(pair.drive(1).ok());
  EXPECT_EQ(pair.got[1], std::vector<std::string>{"at once"});
}

// A server that has a self-signed certificate instead of the secret.
class Stranger {
 public:
  explicit Stranger(int fd) : fd_(fd) {
    char curve[] = "P-256";  // the macro casts const away
    const std::unique_ptr<EVP_PKEY, decltype(&EVP_PKEY_free)> key(EVP_EC_gen(curve), EVP_PKEY_free);
    const std::unique_ptr<X509, decltype(&X509_free)> certificate(X509_new(), X509_free);
    X509_gmtime_adj(X509_getm_notBefore(certificate.get()), 0);
    X509_gmtime_adj(X509_getm_notAfter(certificate.get()), 3600);
    X509_set_pubkey(certificate.get(), key.get());
    EXPECT_GT(X509_sign(certificate.get(), key.get(), EVP_sha256()), 0);
    EXPECT_EQ(SSL_CTX_use_certificate(context_.get(), certificate.get()), 1);
    EXPECT_EQ(SSL_CTX_use_PrivateKey(context_.get(), key.get()), 1);
    tls_.reset(SSL_new(context_.get()));
    SSL_set_fd(tls_.get(), fd);
    SSL_set_accept_state(tls_.get());
  }
  ~Stranger() { close(fd_); }
  Stranger(const Stranger&) = delete;
  Stranger& operator=(const Stranger&) = delete;

  // Continues the handshake and, once that succeeds, sends a message.
  void drive() {
    if (SSL_do_handshake(tls_.get()) == 1) SSL_write(tls_.get(), "\0\0\0\2hi", 6);
  }

 private:
  int fd_;
  std::unique_ptr<SSL_CTX, decltype(&SSL_CTX_free)> context_{SSL_CTX_new(TLS_server_method()),
                                                             SSL_CTX_free};
  std::unique_ptr<SSL, decltype(&SSL_free)> tls_{nullptr, SSL_free};
};

TEST(SecureStreamTest, RefusesAServerThatShowsACertificateInsteadOfTheSecret) {
  int fds[2] = {};
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds), 0);
  const auto client = *SecureStream::over(net::Socket(fds[0]), SecureStream::Role::kClient,
                                          SecureStream::Service::kManager, secret_of(1));
  Stranger stranger(fds[1]);
  bool has_heard = false;
  absl::Status status;
  for (int round = 0; round < 50 && status.ok(); ++round) {
    status = client->drive([&](const std::string&) { has_heard = true; });
    stranger.drive();
  }
  EXPECT_FALSE(status.ok());
  EXPECT_FALSE(client->is_proven());
  EXPECT_FALSE(has_heard);
}

TEST(SecureStreamTest, RefusesAnotherSecret) {
  Pair pair(secret_of(1), secret_of(2));
  pair.client().send("let me in");
  EXPECT_FALSE(pair.drive_all().ok());
  EXPECT_FALSE(pair.server().is_proven());
  EXPECT_TRUE(pair.got[1].empty());
}

// The server's error about the client; the server is the first to notice.
std::string why_refused(unsigned char secret, SecureStream::Service meant,
                        const std::string& name) {
  Pair pair(secret_of(secret), secret_of(2), meant, name);
  EXPECT_TRUE(pair.drive(0).ok());
  const absl::Status why = pair.drive(1);
  EXPECT_EQ(why.code(), absl::StatusCode::kUnauthenticated);
  EXPECT_EQ(pair.drive(0).code(), absl::StatusCode::kUnauthenticated);
  return std::string(why.message());
}

TEST(SecureStreamTest, SaysWhoIsRefusedAndWhy) {
  constexpr auto kManager = SecureStream::Service::kManager;
  const auto begins = [](const std::string& text, const std::string& with) {
    EXPECT_EQ(text.compare(0, with.size(), with), 0) << text;
  };
  begins(why_refused(1, kManager, "rank 3 of 8"), "rank 3 of 8 has another secret (");
  begins(why_refused(1, kManager, ""), "it has another secret (");
  begins(why_refused(1, kManager, "evil\x1b[2J\n"), "evil?[2J? has another secret (");
  const std::string long_name = why_refused(1, kManager, std::string(5000, 'x'));
  EXPECT_LT(long_name.size(), 300u);
  const std::string other = why_refused(2, SecureStream::Service::kSwitch, "rank 3");
  begins(other, "rank 3 asks for 'nezha-switch ");
  EXPECT_NE(other.find("', and not for 'nezha-manager "), std::string::npos) << other;
}

TEST(SecureStreamTest, TakesAClientOfAnyName) {
  for (const std::string& name : {std::string("rank 3: of 8"), std::string(5000, 'x')}) {
    Pair pair(secret_of(1), secret_of(1), SecureStream::Service::kManager, name);
    pair.client().send("hello");
    ASSERT_TRUE(pair.drive_all().ok());
    EXPECT_EQ(pair.got[1], std::vector<std::string>{"hello"});
  }
}

TEST(SecureStreamTest, RefusesWhatIsNoTls) {
  int fds[2] = {};
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds), 0);
  const net::Socket stranger(fds[0]);
  const auto server = *SecureStream::over(net::Socket(fds[1]), SecureStream::Role::kServer,
                                          SecureStream::Service::kManager, secret_of(1));
  ASSERT_EQ(write(fds[0], "GET / HTTP/1.0\r\n\r\n", 18), 18);
  const absl::Status why = server->drive([](const std::string&) {});
  EXPECT_EQ(why.code(), absl::StatusCode::kUnauthenticated);
  EXPECT_NE(why.message().find("it shows no secret"), absl::string_view::npos) << why;
}

TEST(SecureStreamTest, SaysThatTheConnectionWasClosed) {
  int fds[2] = {};
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds), 0);
  const auto server = *SecureStream::over(net::Socket(fds[1]), SecureStream::Role::kServer,
                                          SecureStream::Service::kManager, secret_of(1));
  close(fds[0]);
  EXPECT_EQ(server->drive([](const std::string&) {}).code(), absl::StatusCode::kUnavailable);
}

TEST(SecureStreamTest, ReadsSecrets) {
  const std::string path = ::testing::TempDir() + "secret" + std::to_string(getpid());
  const auto read = [&](const std::string& text) {
    std::ofstream(path) << text;
    return read_secret(path);
  };
  const auto secret = read("0123456789abcdef\n");
  ASSERT_TRUE(secret.ok());
  EXPECT_EQ(*read(" 0123456789abcdef"), *secret);
  EXPECT_NE(*read("0123456789abcdeF"), *secret);
  EXPECT_FALSE(read("short").ok());
  EXPECT_EQ(std::string(read("short").status().message()).find("short\""), std::string::npos);
  unlink(path.c_str());
  EXPECT_EQ(read_secret(path).status().code(), absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace nezha::flare
