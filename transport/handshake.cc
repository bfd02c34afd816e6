// SPDX-License-Identifier: Apache-2.0
#include "transport/handshake.h"

#include <sys/epoll.h>

#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "common/host.h"
#include "common/log.h"

namespace nezha {
namespace {

constexpr Nanos kHandshakeTimeout = 5 * kSecond;

absl::Status explain(const wire::Welcome& welcome, const std::string& address) {
  switch (welcome.code) {
    case wire::WelcomeCode::kAccepted:
      return absl::OkStatus();
    case wire::WelcomeCode::kWrongVersion:
      return absl::FailedPreconditionError(absl::StrCat(
          "the peer speaks version ", welcome.version, " of the protocol, and ", process_name(),
          " speaks version ", wire::kVersion, "; install the same version of nezha on all hosts"));
    case wire::WelcomeCode::kUnknownJob:
      return absl::NotFoundError("the peer's context is closed");
    case wire::WelcomeCode::kWrongTarget:
      return absl::UnavailableError(absl::StrCat("another process answers at ", address));
    case wire::WelcomeCode::kNoRail:
      return absl::FailedPreconditionError("the peer's rail at that address has another name");
    case wire::WelcomeCode::kDuplicate:
      return absl::AlreadyExistsError("the peer keeps another connection");
    case wire::WelcomeCode::kClosing:
      return absl::PermissionDeniedError(
          absl::StrCat("the peer accepts no connection of ", process_name()));
  }
  return absl::InternalError("unreachable");
}

// Returns the first bytes of the text, as many as a Hello or Welcome has.
template <typename Bytes>
Bytes head_of(absl::string_view text) {
  Bytes bytes{};
  std::memcpy(bytes.data(), text.data(), bytes.size());
  return bytes;
}

// Sends all in one piece, which fits a fresh connection's buffer.
template <typename Bytes>
bool sends(int fd, const Bytes& head, absl::string_view greeting) {
  const std::string text = absl::StrCat(
      absl::string_view(reinterpret_cast<const char*>(head.data()), head.size()), greeting);
  return ::send(fd, text.data(), text.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(text.size());
}

}  // namespace

absl::Status ExactReader::read(int fd, size_t size) {
  if (bytes_.size() < size) bytes_.resize(size);
  while (done_ < size) {
    const ssize_t got = recv(fd, bytes_.data() + done_, size - done_, 0);
    if (got == 0) return absl::AbortedError("the connection was closed in the handshake");
    if (got < 0 && errno == EAGAIN) return absl::UnavailableError("not yet");
    if (got < 0 && errno != EINTR) {
      return absl::AbortedError(absl::StrCat("reading in the handshake: ", strerror(errno)));
    }
    if (got > 0) done_ += static_cast<size_t>(got);
  }
  return absl::OkStatus();
}

// ---- Connecting --------------------------------------------------------------------------------

OutgoingHandshake::OutgoingHandshake(Progress& progress, const wire::Hello& hello, std::string to,
                                     Device::Connected done)
    : progress_(progress),
      hello_(wire::encode(hello)),
      to_(std::move(to)),
      done_(std::move(done)),
      timeout_(progress, [this] {
        finish(absl::DeadlineExceededError(absl::StrCat("no answer from ", to_)));
      }) {}

OutgoingHandshake::~OutgoingHandshake() {
  if (registered_) progress_.remove(socket_.fd());
}

void OutgoingHandshake::start(absl::StatusOr<net::Socket> socket, const net::Address& to,
                              LinkMaker& maker) {
  timeout_.start(now() + kHandshakeTimeout);
  early_error_ = begin(std::move(socket), to, maker);
  // The timer reports the error, so that `done` is never called from inside of the caller.
  if (!early_error_.ok()) timeout_.start(now());
}

// Errors of this end and of the kernel do not mean that the peer has refused or left.
absl::Status OutgoingHandshake::begin(absl::StatusOr<net::Socket> socket, const net::Address& to,
                                      LinkMaker& maker) {
  if (!socket.ok()) return absl::AbortedError(socket.status().message());
  absl::StatusOr<std::unique_ptr<LinkEnd>> end = maker.new_end();
  if (!end.ok()) return absl::AbortedError(end.status().message());
  end_ = *std::move(end);
  greeting_size_ = maker.greeting_size();
  socket_ = *std::move(socket);
  net::set_stream_options(socket_.fd());
  if (::connect(socket_.fd(), to.sockaddr_ptr(), to.length()) != 0 && errno != EINPROGRESS) {
    return connect_error(errno);
  }
  const absl::Status added = progress_.add(socket_.fd(), this, EPOLLOUT);
  registered_ = added.ok();
  return added.ok() ? absl::OkStatus() : absl::AbortedError(added.message());
}

absl::Status OutgoingHandshake::connect_error(int error) const {
  const std::string text = absl::StrCat("connecting to ", to_, ": ", strerror(error));
  return error == ECONNREFUSED || error == ECONNRESET ? absl::UnavailableError(text)
                                                      : absl::AbortedError(text);
}

void OutgoingHandshake::on_events(uint32_t) {
  if (!greeted_) return greet();
  absl::Status status = answer_.read(socket_.fd(), wire::kWelcomeSize);
  if (status.ok()) {
    const auto welcome = wire::decode_welcome(head_of<wire::WelcomeBytes>(answer_.bytes()));
    if (!welcome.ok()) return finish(welcome.status());
    generation_ = welcome->generation;
    absl::Status refusal = explain(*welcome, to_);
    if (!refusal.ok()) return finish(std::move(refusal));
    status = answer_.read(socket_.fd(), wire::kWelcomeSize + greeting_size_);
  }
  if (!absl::IsUnavailable(status)) finish(std::move(status));
}

void OutgoingHandshake::greet() {
  int error = 0;
  socklen_t length = sizeof error;
  getsockopt(socket_.fd(), SOL_SOCKET, SO_ERROR, &error, &length);
  if (error != 0) return finish(connect_error(error));
  if (!sends(socket_.fd(), hello_, end_->greeting())) return finish(connect_error(errno));
  greeted_ = true;
  progress_.modify(socket_.fd(), EPOLLIN);
}

// There is an answer, or there will be none.
void OutgoingHandshake::finish(absl::Status status) {
  if (!early_error_.ok()) status = early_error_;
  timeout_.cancel();
  if (registered_) progress_.remove(socket_.fd());
  registered_ = false;
  if (!status.ok()) return report(std::move(status));
  const absl::string_view greeting = answer_.bytes().substr(wire::kWelcomeSize);
  if (absl::Status fit = end_->check(greeting); !fit.ok()) return report(std::move(fit));
  end_->make(std::move(socket_), greeting, /*is_accepting=*/false,
             [this](absl::StatusOr<std::unique_ptr<Link>> link) {
               if (!link.ok()) link = absl::AbortedError(link.status().message());
               report(std::move(link));
             });
}

// This is done last, since the callback may destroy this object.
void OutgoingHandshake::report(absl::StatusOr<std::unique_ptr<Link>> link) {
  const Device::Connected done = std::move(done_);
  done(std::move(link), generation_);
}

// ---- Accepting ---------------------------------------------------------------------------------

IncomingHandshake::IncomingHandshake(Progress& progress, Acceptor& acceptor, const Device& device,
                                     LinkMaker& maker, net::Socket socket, const net::Address& from,
                                     Over over)
    : progress_(progress),
      acceptor_(acceptor),
      device_(device),
      maker_(maker),
      socket_(std::move(socket)),
      from_(from),
      over_(std::move(over)),
      timeout_(progress, [this] { end(nullptr); }) {}

IncomingHandshake::~IncomingHandshake() { unregister(); }

void IncomingHandshake::unregister() {
  if (registered_) progress_.remove(socket_.fd());
  registered_ = false;
}

absl::Status IncomingHandshake::start() {
  timeout_.start(now() + kHandshakeTimeout);
  absl::Status status = progress_.add(socket_.fd(), this, EPOLLIN);
  registered_ = status.ok();
  return status;
}

// A peer of another version is told so at once, since its greeting, if it has one, is of unknown
// size.
void IncomingHandshake::on_events(uint32_t) {
  absl::Status status = said_.read(socket_.fd(), wire::kHelloSize);
  if (status.ok()) {
    const auto hello = wire::decode_hello(head_of<wire::HelloBytes>(said_.bytes()));
    if (absl::IsFailedPrecondition(hello.status())) {
      sends(socket_.fd(), wire::encode(wire::Welcome{.code = wire::WelcomeCode::kWrongVersion}),
            {});
      return end(nullptr);
    }
    if (!hello.ok()) {
      log().warn("{}: {}", device_.name(), std::string(hello.status().message()));
      return end(nullptr);
    }
    hello_ = *hello;
    status = said_.read(socket_.fd(), wire::kHelloSize + maker_.greeting_size());
  }
  if (absl::IsUnavailable(status)) return;
  if (!status.ok()) return end(nullptr);
  answer();
}

void IncomingHandshake::answer() {
  unregister();
  timeout_.cancel();
  const wire::Welcome welcome = acceptor_.on_hello(device_.rail(), hello_);
  if (welcome.code == wire::WelcomeCode::kAccepted) return accept(welcome);
  sends(socket_.fd(), wire::encode(welcome), {});
  end(nullptr);
}

void IncomingHandshake::accept(const wire::Welcome& welcome) {
  absl::StatusOr<std::unique_ptr<LinkEnd>> made = maker_.new_end();
  if (!made.ok()) return end(made.status());
  end_ = *std::move(made);
  const absl::string_view peers = said_.bytes().substr(wire::kHelloSize);
  // A peer that cannot be told has left.
  if (!sends(socket_.fd(), wire::encode(welcome), end_->greeting())) return end(nullptr);
  if (absl::Status fit = end_->check(peers); !fit.ok()) return end(std::move(fit));
  end_->make(std::move(socket_), peers, /*is_accepting=*/true,
             [this](absl::StatusOr<std::unique_ptr<Link>> link) {
               if (absl::IsUnavailable(link.status())) link = nullptr;
               end(std::move(link));
             });
}

// This is done last, since the owner destroys this object.
void IncomingHandshake::end(absl::StatusOr<std::unique_ptr<Link>> link) {
  const Over over = std::move(over_);
  const wire::Hello hello = hello_;
  over(*this, hello, std::move(link));
}

}  // namespace nezha
