// SPDX-License-Identifier: Apache-2.0
// Messages between processes that share a secret, over a TCP connection: TLS 1.3 with that secret
// as its pre-shared key and a fresh key exchange (E. Rescorla: RFC 8446, sections 2.2 and 4.2.9).
// Whoever lacks the secret can neither take part nor read, forge or replay anything.
//
// A message is its length (4 bytes, little-endian) and that many bytes of text.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/net/socket.h"

struct ssl_ctx_st;
struct ssl_st;

namespace nezha::flare {

// A secret of 256 bits.
using Secret = std::array<unsigned char, 32>;

// Returns the secret in a file: all of its contents but white space at the ends, at least 16 bytes.
// An error names the file and does not repeat its contents.
absl::StatusOr<Secret> read_secret(const std::string& path);

// Returns a socket that listens at the address. An error names it.
absl::StatusOr<net::Socket> listen_at(const net::Address& address);

// The class is not thread-safe. Its methods never block.
class SecureStream {
 public:
  enum class Role { kClient, kServer };
  // The kind of the server, which the client names first of all, with the version. All kinds share
  // one secret: otherwise somebody in between could connect a client to another server than it
  // means to, or to itself (R. Housley et al.: RFC 9257, section 4.1).
  enum class Service { kManager, kSwitch };
  static constexpr size_t kMaxMessage = 1 << 20;  // bytes

  // Makes a stream over a non-blocking socket that is connected or connecting. `name` is what a
  // client calls itself. It is sent unencrypted and without proof, so that a server that refuses
  // the client can name it.
  static absl::StatusOr<std::unique_ptr<SecureStream>> over(net::Socket socket, Role role,
                                                            Service service, const Secret& secret,
                                                            std::string name = "");
  ~SecureStream();
  SecureStream(const SecureStream&) = delete;
  SecureStream& operator=(const SecureStream&) = delete;

  int fd() const { return socket_.fd(); }
  // Returns whether to call drive() also when the socket is writable, not only when it is readable.
  bool wants_to_write() const { return !to_send_.empty(); }
  // Returns whether the peer has shown that it has the secret.
  bool is_proven() const;

  // Queues a message, at most kMaxMessage bytes; drive() sends it.
  void send(absl::string_view message);
  // Does what can be done without blocking, and passes complete messages to `handle`, which may
  // send. Returns kUnavailable if the connection is over. Returns kUnauthenticated if the peer has
  // another secret or version, or another protocol; the error says which, as far as this end can
  // see, and what the peer calls itself.
  absl::Status drive(absl::FunctionRef<void(const std::string& message)> handle);

 private:
  struct Free {
    void operator()(ssl_st* tls) const;
  };

  SecureStream(net::Socket socket, Role role, Service service, const Secret& secret,
               std::string name);
  // OpenSSL's callbacks.
  static unsigned give_client_key(ssl_st* tls, const char* hint, char* identity,
                                  unsigned identity_room, unsigned char* key, unsigned key_room);
  static unsigned give_server_key(ssl_st* tls, const char* identity, unsigned char* key,
                                  unsigned key_room);
  static ssl_ctx_st* make_context(Role role);

  absl::Status receive();
  absl::Status decrypt();
  absl::Status hand_out(absl::FunctionRef<void(const std::string& message)> handle);
  absl::Status encrypt();
  absl::Status flush();
  absl::Status failure() const;
  std::string why_refused() const;

  net::Socket socket_;
  const Role role_;
  const Service service_;
  const Secret secret_;
  const std::string name_;  // a client's own
  std::string identity_;    // a server's: what the client has said of itself; empty: nothing
  std::unique_ptr<ssl_st, Free> tls_;
  std::string plain_out_;  // text that is not encrypted yet
  std::string plain_in_;   // bytes of messages that are not complete
  std::string to_send_;    // encrypted bytes
  bool is_closed_ = false;
};

}  // namespace nezha::flare
