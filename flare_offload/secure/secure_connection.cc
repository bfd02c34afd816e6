// SPDX-License-Identifier: Apache-2.0
#include "flare_offload/secure/secure_connection.h"

#include <sys/epoll.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"

namespace nezha::flare {

SecureConnection::SecureConnection(Progress& progress, Callbacks callbacks)
    : progress_(progress), callbacks_(std::move(callbacks)), deadline_(progress, [this] {
        if (stream_ != nullptr) close(absl::DeadlineExceededError("no answer"));
        deadline_.cancel();
        // The callback may destroy this.
        const auto on_closed = std::move(callbacks_.on_closed);
        const absl::Status why = why_;
        on_closed(why);
      }) {}

SecureConnection::SecureConnection(Progress& progress, net::Socket accepted, Service service,
                                   const Secret& secret, Callbacks callbacks)
    : SecureConnection(progress, std::move(callbacks)) {
  open(std::move(accepted), SecureStream::Role::kServer, service, secret, "");
}

SecureConnection::SecureConnection(Progress& progress, net::Socket socket, const net::Address& to,
                                   Service service, const Secret& secret, std::string name,
                                   Callbacks callbacks)
    : SecureConnection(progress, std::move(callbacks)) {
  if (connect(socket.fd(), to.sockaddr_ptr(), to.length()) != 0 && errno != EINPROGRESS) {
    close(absl::UnavailableError(strerror(errno)));
    return;
  }
  open(std::move(socket), SecureStream::Role::kClient, service, secret, std::move(name));
}

SecureConnection::~SecureConnection() {
  if (stream_ != nullptr) progress_.remove(stream_->fd());
}

void SecureConnection::open(net::Socket socket, SecureStream::Role role, Service service,
                            const Secret& secret, std::string name) {
  net::set_stream_options(socket.fd());
  auto stream = SecureStream::over(std::move(socket), role, service, secret, std::move(name));
  if (!stream.ok()) return close(stream.status());
  const absl::Status added = progress_.add((*stream)->fd(), this, EPOLLIN | EPOLLOUT);
  if (!added.ok()) return close(added);
  stream_ = *std::move(stream);
  deadline_.start(now() + kProofTime);
}

void SecureConnection::send(const std::string& message) {
  if (stream_ == nullptr) return;
  stream_->send(message);
  progress_.modify(stream_->fd(), EPOLLIN | EPOLLOUT);
}

void SecureConnection::flush() {
  if (stream_ != nullptr) (void)stream_->drive([](const std::string&) {});
}

void SecureConnection::on_events(uint32_t /*epoll_events*/) {
  bool is_new = false;
  do {
    const absl::Status status =
        stream_->drive([this](const std::string& message) { callbacks_.on_message(message); });
    if (!status.ok()) return close(status);
    // This is checked each time that something may have come: perhaps nothing more will.
    is_new = stream_->is_proven() && !std::exchange(is_ready_, true);
    if (is_new) deadline_.cancel();
    if (is_new && callbacks_.on_ready) callbacks_.on_ready();
  } while (is_new);  // sends what on_ready() has queued
  progress_.modify(stream_->fd(), stream_->wants_to_write() ? EPOLLIN | EPOLLOUT : EPOLLIN);
}

// The timer calls on_closed, so that it never runs inside of the caller.
void SecureConnection::close(const absl::Status& why) {
  if (stream_ != nullptr) progress_.remove(stream_->fd());
  stream_.reset();
  why_ = why;
  deadline_.start(now());
}

}  // namespace nezha::flare
