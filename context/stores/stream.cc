// SPDX-License-Identifier: Apache-2.0
#include "context/stores/stream.h"

#include <netdb.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/un.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <future>
#include <memory>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/shortage.h"

namespace nezha {
namespace {

absl::Status failed(absl::string_view what, int error) {
  return absl::UnavailableError(absl::StrCat(what, ": ", std::generic_category().message(error)));
}

absl::Status poll_until(int fd, short events, absl::string_view what, Nanos deadline) {
  while (true) {
    const Nanos left = deadline - now();
    if (left <= 0) return absl::DeadlineExceededError(absl::StrCat(what, " takes too long"));
    const Nanos ms = std::min<Nanos>((left + kMillisecond - 1) / kMillisecond, 1000);
    pollfd entry{fd, events, 0};
    const int ready = ::poll(&entry, 1, static_cast<int>(ms));
    if (ready > 0) return absl::OkStatus();
    if (ready < 0 && errno != EINTR) return failed("poll", errno);
  }
}

using Addresses = std::unique_ptr<addrinfo, decltype(&freeaddrinfo)>;
struct Resolved {
  int error = 0;
  int system_error = 0;  // if `error` is EAI_SYSTEM
  Addresses addresses{nullptr, &freeaddrinfo};
};

Resolved resolve(const std::string& host, uint16_t port, int flags) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags;
  addrinfo* found = nullptr;
  Resolved resolved;
  resolved.error = getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found);
  if (resolved.error == EAI_SYSTEM) resolved.system_error = errno;
  if (resolved.error == 0) resolved.addresses.reset(found);
  return resolved;
}

// getaddrinfo() takes no deadline, so a thread waits for the name server. If that takes too long,
// the thread is left behind: it ends at the resolver's own timeout, and uses no memory of ours.
absl::StatusOr<Addresses> resolve_until(const std::string& host, uint16_t port, Nanos deadline) {
  Resolved resolved = resolve(host, port, AI_NUMERICHOST);
  if (resolved.error == EAI_NONAME) {
    std::promise<Resolved> promise;
    std::future<Resolved> future = promise.get_future();
    auto thread = start_thread([host, port, answer = std::move(promise)]() mutable {
      // AI_ADDRCONFIG is not set, because it would leave out 127.0.0.1 if all other addresses are
      // IPv6. An address that this host cannot reach fails at once.
      answer.set_value(resolve(host, port, 0));
    });
    if (!thread.ok()) return thread.status();
    thread->detach();
    if (future.wait_for(std::chrono::nanoseconds(deadline - now())) != std::future_status::ready) {
      return absl::DeadlineExceededError("looking up the host's name takes too long");
    }
    resolved = future.get();
  }
  if (resolved.error == 0) return std::move(resolved.addresses);
  constexpr absl::string_view kWhat = "looking up the host's name";
  if (resolved.error == EAI_SYSTEM) return system_error(resolved.system_error, kWhat);
  if (resolved.error == EAI_MEMORY) return system_error(ENOMEM, kWhat);
  const std::string why = absl::StrCat(kWhat, ": ", gai_strerror(resolved.error));
  return resolved.error == EAI_AGAIN ? absl::UnavailableError(why) : absl::NotFoundError(why);
}

// Returns an address and port, for errors: "[::1]:6379: ".
std::string text_of(const addrinfo& entry) {
  net::Address address;
  std::memcpy(&address.storage, entry.ai_addr, entry.ai_addrlen);
  return address.str() + ": ";
}

}  // namespace

absl::StatusOr<Stream> Stream::to_host(const std::string& host, uint16_t port, Nanos deadline) {
  const auto addresses = resolve_until(host, port, deadline);
  if (!addresses.ok()) return addresses.status();
  int left = 0;
  for (const addrinfo* entry = addresses->get(); entry != nullptr; entry = entry->ai_next) ++left;
  const bool has_several = left > 1;
  auto code = absl::StatusCode::kNotFound;
  std::string why = left == 0 ? "the host has no address" : "";
  for (const addrinfo* entry = addresses->get(); entry != nullptr; entry = entry->ai_next, --left) {
    // Divides the time over the addresses, so that one that never answers leaves time for the
    // others.
    const Nanos begin = now();
    auto stream = connect(entry->ai_addr, entry->ai_addrlen, begin + (deadline - begin) / left);
    if (stream.ok()) {
      const int on = 1;
      setsockopt(stream->socket_.fd(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
      return stream;
    }
    // One address that may answer later is enough reason to try again.
    if (code != absl::StatusCode::kUnavailable) code = stream.status().code();
    absl::StrAppend(&why, why.empty() ? "" : "; ", has_several ? text_of(*entry) : "",
                    stream.status().message());
  }
  return absl::Status(code, why);
}

absl::StatusOr<Stream> Stream::to_socket(const std::string& path, Nanos deadline) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path) return absl::NotFoundError("the path is too long");
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  return connect(reinterpret_cast<const sockaddr*>(&address), sizeof address, deadline);
}

absl::StatusOr<Stream> Stream::connect(const sockaddr* address, socklen_t length, Nanos deadline) {
  net::Socket socket(::socket(address->sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (socket.fd() < 0) return system_error(errno, "making a socket");
  if (::connect(socket.fd(), address, length) != 0) {
    if (errno != EINPROGRESS) return failed("connecting", errno);
    absl::Status status = poll_until(socket.fd(), POLLOUT, "connecting", deadline);
    if (!status.ok()) return status;
    int error = 0;
    socklen_t size = sizeof error;
    getsockopt(socket.fd(), SOL_SOCKET, SO_ERROR, &error, &size);
    if (error != 0) return failed("connecting", error);
  }
  return Stream(std::move(socket));
}

absl::Status Stream::send(absl::string_view bytes, Nanos deadline) {
  while (!bytes.empty()) {
    // Polls first, so that a deadline that has passed is noticed even if there is room.
    absl::Status status = poll_until(socket_.fd(), POLLOUT, "sending the command", deadline);
    if (!status.ok()) return status;
    const ssize_t sent = ::send(socket_.fd(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent >= 0) {
      bytes.remove_prefix(static_cast<size_t>(sent));
    } else if (errno != EAGAIN && errno != EINTR) {
      return failed("sending the command", errno);
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<size_t> Stream::receive(absl::Span<char> buffer, Nanos deadline) {
  while (true) {
    absl::Status status = poll_until(socket_.fd(), POLLIN, "the answer", deadline);
    if (!status.ok()) return status;
    const ssize_t received = ::recv(socket_.fd(), buffer.data(), buffer.size(), 0);
    if (received > 0) return static_cast<size_t>(received);
    if (received == 0) return absl::UnavailableError("the server closed the connection");
    if (errno != EAGAIN && errno != EINTR) return failed("reading the answer", errno);
  }
}

}  // namespace nezha
