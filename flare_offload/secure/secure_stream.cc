// SPDX-License-Identifier: Apache-2.0
#include "flare_offload/secure/secure_stream.h"

#include <openssl/err.h>
#include <openssl/ssl.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "common/descriptor.h"
#include "common/fields.h"
#include "flare_offload/wire/frame.h"

namespace nezha::flare {
namespace {

constexpr size_t kLengthSize = sizeof(uint32_t);
// The most bytes that may wait to be sent: a peer that reads nothing is given up.
constexpr size_t kMaxQueued = 8 * SecureStream::kMaxMessage;

// Returns the key's identity, which both ends' proofs that they have the key cover, too.
std::string identity_of(SecureStream::Service service) {
  const bool is_manager = service == SecureStream::Service::kManager;
  return absl::StrCat(is_manager ? "nezha-manager" : "nezha-switch", " ", kVersion);
}

constexpr char kNamed = ':';  // comes before what a client calls itself
constexpr size_t kMaxName = 100;

// Returns the text for logs. Anybody may have sent it, so characters that move a terminal's cursor
// are replaced.
std::string printable(absl::string_view text) {
  std::string out(text.substr(0, kMaxName));
  std::replace_if(
      out.begin(), out.end(), [](char c) { return c < ' ' || c > '~'; }, '?');
  return out;
}

struct FreeContext {
  void operator()(SSL_CTX* context) const { SSL_CTX_free(context); }
};

}  // namespace

unsigned SecureStream::give_client_key(ssl_st* tls, const char* /*hint*/, char* identity,
                                       unsigned identity_room, unsigned char* key,
                                       unsigned key_room) {
  const auto& self = *static_cast<const SecureStream*>(SSL_get_app_data(tls));
  std::string said = identity_of(self.service_);
  if (!self.name_.empty()) absl::StrAppend(&said, ":", self.name_.substr(0, kMaxName));
  if (identity_room <= said.size() || key_room < self.secret_.size()) return 0;
  *std::copy(said.begin(), said.end(), identity) = '\0';
  std::copy(self.secret_.begin(), self.secret_.end(), key);
  return static_cast<unsigned>(self.secret_.size());
}

unsigned SecureStream::give_server_key(ssl_st* tls, const char* identity, unsigned char* key,
                                       unsigned key_room) {
  auto& self = *static_cast<SecureStream*>(SSL_get_app_data(tls));
  self.identity_ = identity;
  const bool is_meant = absl::string_view(identity).substr(0, self.identity_.find(kNamed)) ==
                        identity_of(self.service_);
  if (!is_meant || key_room < self.secret_.size()) return 0;
  std::copy(self.secret_.begin(), self.secret_.end(), key);
  return static_cast<unsigned>(self.secret_.size());
}

// Returns null if OpenSSL does not support what is needed.
SSL_CTX* SecureStream::make_context(Role role) {
  const bool is_server = role == Role::kServer;
  std::unique_ptr<SSL_CTX, FreeContext> context(
      SSL_CTX_new(is_server ? TLS_server_method() : TLS_client_method()));
  if (context == nullptr || SSL_CTX_set_min_proto_version(context.get(), TLS1_3_VERSION) != 1 ||
      SSL_CTX_set_ciphersuites(context.get(), "TLS_AES_128_GCM_SHA256") != 1 ||
      SSL_CTX_set_num_tickets(context.get(), 0) != 1) {
    return nullptr;
  }
  SSL_CTX_set_mode(context.get(),
                   SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
  SSL_CTX_set_session_cache_mode(context.get(), SSL_SESS_CACHE_OFF);
  if (is_server) {
    SSL_CTX_set_psk_server_callback(context.get(), give_server_key);
  } else {
    SSL_CTX_set_psk_client_callback(context.get(), give_client_key);
    // A server may decline the shared key and show a certificate (RFC 8446, section 4.2.11). No
    // certificate is trusted here.
    SSL_CTX_set_verify(context.get(), SSL_VERIFY_PEER, nullptr);
  }
  return context.release();
}

absl::StatusOr<Secret> read_secret(const std::string& path) {
  constexpr size_t kLeast = 16;
  const std::optional<std::string> contents = read_file(path);
  if (!contents.has_value()) {
    return absl::NotFoundError(absl::StrCat("cannot read the secret's file ", path));
  }
  const absl::string_view text = absl::StripAsciiWhitespace(*contents);
  if (text.size() < kLeast) {
    return absl::InvalidArgumentError(absl::StrCat("the secret in ", path, " is shorter than ",
                                                   kLeast,
                                                   " bytes; `openssl rand -hex 32` makes one"));
  }
  Secret secret{};
  unsigned size = 0;
  if (EVP_Digest(text.data(), text.size(), secret.data(), &size, EVP_sha256(), nullptr) != 1) {
    return absl::InternalError("OpenSSL has no SHA-256");
  }
  return secret;
}

absl::StatusOr<net::Socket> listen_at(const net::Address& address) {
  net::Socket made(socket(address.family(), SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  // A process that starts again takes the port that its predecessor had.
  const int on = 1;
  setsockopt(made.fd(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (bind(made.fd(), address.sockaddr_ptr(), address.length()) != 0 ||
      listen(made.fd(), SOMAXCONN) != 0) {
    return absl::ErrnoToStatus(errno, absl::StrCat("listening at ", address.str()));
  }
  return made;
}

void SecureStream::Free::operator()(ssl_st* tls) const { SSL_free(tls); }

SecureStream::SecureStream(net::Socket socket, Role role, Service service, const Secret& secret,
                           std::string name)
    : socket_(std::move(socket)),
      role_(role),
      service_(service),
      secret_(secret),
      name_(std::move(name)) {}

SecureStream::~SecureStream() = default;

absl::StatusOr<std::unique_ptr<SecureStream>> SecureStream::over(net::Socket socket, Role role,
                                                                 Service service,
                                                                 const Secret& secret,
                                                                 std::string name) {
  std::unique_ptr<SecureStream> made(
      new SecureStream(std::move(socket), role, service, secret, std::move(name)));
  // Making a context takes longer than a handshake. They stay until the process ends.
  static SSL_CTX* const kOfClients = make_context(Role::kClient);
  static SSL_CTX* const kOfServers = make_context(Role::kServer);
  SSL_CTX* const context = role == Role::kServer ? kOfServers : kOfClients;
  if (context != nullptr) made->tls_.reset(SSL_new(context));
  BIO* in = BIO_new(BIO_s_mem());
  BIO* out = BIO_new(BIO_s_mem());
  if (made->tls_ == nullptr || in == nullptr || out == nullptr) {
    BIO_free(in);
    BIO_free(out);
    return absl::InternalError("OpenSSL makes no TLS 1.3 connection");
  }
  SSL_set_bio(made->tls_.get(), in, out);
  SSL_set_app_data(made->tls_.get(), made.get());
  if (role == Role::kServer) {
    SSL_set_accept_state(made->tls_.get());
  } else {
    SSL_set_connect_state(made->tls_.get());
  }
  return made;
}

// OpenSSL counts a handshake with a pre-shared key as a resumed session.
bool SecureStream::is_proven() const {
  return SSL_is_init_finished(tls_.get()) == 1 && SSL_session_reused(tls_.get()) == 1;
}

void SecureStream::send(absl::string_view message) {
  std::byte length[kLengthSize];
  FieldWriter(length).put(static_cast<uint32_t>(message.size()));
  plain_out_.append(reinterpret_cast<const char*>(length), kLengthSize);
  plain_out_.append(message.data(), message.size());
}

absl::Status SecureStream::drive(absl::FunctionRef<void(const std::string& message)> handle) {
  absl::Status status = receive();
  if (status.ok()) status = decrypt();
  if (status.ok()) status = hand_out(handle);
  if (status.ok()) status = encrypt();
  // Sends also the alert that tells the peer why.
  const absl::Status sent = flush();
  if (status.ok()) status = sent;
  if (status.ok() && is_closed_) return absl::UnavailableError("the connection was closed");
  return status;
}

absl::Status SecureStream::receive() {
  char bytes[16 << 10];
  for (;;) {
    const ssize_t got = recv(fd(), bytes, sizeof bytes, MSG_DONTWAIT);
    if (got > 0) {
      BIO_write(SSL_get_rbio(tls_.get()), bytes, static_cast<int>(got));
      // The next call takes the rest: a peer that floods must not keep others waiting.
      return absl::OkStatus();
    }
    if (got == 0) is_closed_ = true;
    if (got == 0 || errno == EAGAIN || errno == ENOTCONN) return absl::OkStatus();
    if (errno != EINTR) return absl::UnavailableError(strerror(errno));
  }
}

absl::Status SecureStream::decrypt() {
  char bytes[16 << 10];
  size_t last_left = 0;
  for (;;) {
    ERR_clear_error();
    const int got = SSL_read(tls_.get(), bytes, sizeof bytes);
    if (got > 0) {
      plain_in_.append(bytes, static_cast<size_t>(got));
      continue;
    }
    const int error = SSL_get_error(tls_.get(), got);
    if (error == SSL_ERROR_ZERO_RETURN) is_closed_ = true;
    const bool waits = error == SSL_ERROR_WANT_READ || error == SSL_ERROR_WANT_WRITE;
    // At the end of the handshake OpenSSL waits for input although more has come.
    const size_t left = BIO_ctrl_pending(SSL_get_rbio(tls_.get()));
    if (waits && left > 0 && std::exchange(last_left, left) != left) continue;
    return waits || is_closed_ ? absl::OkStatus() : failure();
  }
}

absl::Status SecureStream::hand_out(absl::FunctionRef<void(const std::string& message)> handle) {
  while (plain_in_.size() >= kLengthSize) {
    const auto* start = reinterpret_cast<const std::byte*>(plain_in_.data());
    const size_t length = FieldReader(start).get<uint32_t>();
    if (length > kMaxMessage) {
      return absl::UnavailableError(absl::StrCat("the peer announced a message of ", length,
                                                 " bytes; the limit is ", kMaxMessage));
    }
    if (plain_in_.size() < kLengthSize + length) break;
    const std::string message = plain_in_.substr(kLengthSize, length);
    plain_in_.erase(0, kLengthSize + length);
    handle(message);
  }
  return absl::OkStatus();
}

absl::Status SecureStream::encrypt() {
  if (plain_out_.size() + to_send_.size() > kMaxQueued) {
    return absl::UnavailableError("the peer does not read what it is sent");
  }
  while (!plain_out_.empty() && is_proven()) {
    ERR_clear_error();
    const int put = SSL_write(tls_.get(), plain_out_.data(), static_cast<int>(plain_out_.size()));
    if (put <= 0) return failure();
    plain_out_.erase(0, static_cast<size_t>(put));
  }
  return absl::OkStatus();
}

absl::Status SecureStream::flush() {
  BIO* out = SSL_get_wbio(tls_.get());
  char bytes[16 << 10];
  for (int got = 0; (got = BIO_read(out, bytes, sizeof bytes)) > 0;) {
    to_send_.append(bytes, static_cast<size_t>(got));
  }
  while (!to_send_.empty()) {
    const ssize_t sent =
        ::send(fd(), to_send_.data(), to_send_.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0 && (errno == EAGAIN || errno == ENOTCONN)) break;
    if (sent < 0 && errno != EINTR) return absl::UnavailableError(strerror(errno));
    if (sent > 0) to_send_.erase(0, static_cast<size_t>(sent));
  }
  return absl::OkStatus();
}

absl::Status SecureStream::failure() const {
  const unsigned long error = ERR_peek_error();
  const char* reason = error == 0 ? nullptr : ERR_reason_error_string(error);
  return absl::UnauthenticatedError(absl::StrCat(is_proven() ? "TLS failed" : why_refused(), " (",
                                                 reason == nullptr ? "no reason given" : reason,
                                                 ")"));
}

// The server sees first that the secrets differ; a client learns only that the connection ends.
std::string SecureStream::why_refused() const {
  if (role_ == Role::kClient) return "the secrets differ, or the versions of nezha do";
  if (identity_.empty()) return "it shows no secret, and is no process of nezha";
  const size_t end = identity_.find(kNamed);
  const std::string means = printable(identity_.substr(0, end));
  const std::string name = end == std::string::npos ? "it" : printable(identity_.substr(end + 1));
  if (means == identity_of(service_)) return absl::StrCat(name, " has another secret");
  return absl::StrCat(name, " asks for '", means, "', and not for '", identity_of(service_), "'");
}

}  // namespace nezha::flare
