// SPDX-License-Identifier: Apache-2.0
#include "check/connection.h"

#include <linux/tcp.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>

namespace nezha::check {
namespace {

// The kernel gives up a neighbour that does not answer three questions, one a second. A firewall's
// answer of "no route" comes at once.
constexpr Nanos kNeighbourPatience = 800 * kMillisecond;

Attempt failed(Outcome outcome, std::string detail) {
  return {outcome, std::move(detail), std::nullopt};
}

Attempt failed(int error, Nanos took) {
  switch (error) {
    case ECONNREFUSED:
    case ECONNRESET:
      return failed(Outcome::kRefused, strerror(error));
    case ETIMEDOUT:
      return failed(Outcome::kSilent, strerror(error));
    case EHOSTUNREACH:
      return failed(took < kNeighbourPatience ? Outcome::kNoRoute : Outcome::kNoNeighbour,
                    strerror(error));
    case ENETUNREACH:
    case EACCES:
    case EPERM:
      return failed(Outcome::kNoRoute, strerror(error));
    default:
      return failed(Outcome::kFailed, strerror(error));
  }
}

// Returns 0, or the kernel's reason.
int connect(int fd, const net::Address& to, Nanos deadline) {
  if (::connect(fd, to.sockaddr_ptr(), to.length()) == 0) return 0;
  if (errno != EINPROGRESS) return errno;
  if (!await_events(fd, POLLOUT, deadline)) return ETIMEDOUT;
  int error = 0;
  socklen_t length = sizeof error;
  getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length);
  return error;
}

Attempt greet(const Target& target, Service service, Stream stream, Nanos deadline) {
  const Hello hello{target.token, static_cast<uint32_t>(target.rank),
                    static_cast<uint32_t>(target.peer), static_cast<uint32_t>(target.peer_rail),
                    service};
  WelcomeBytes bytes{};
  absl::Status status = stream.send(encode(hello), deadline);
  if (status.ok()) status = stream.receive(absl::MakeSpan(bytes), deadline);
  if (absl::IsDeadlineExceeded(status)) {
    return failed(Outcome::kFailed, "the connection was made, but nothing came through it");
  }
  const auto welcome = status.ok() ? decode_welcome(bytes) : std::nullopt;
  if (!welcome || welcome->token != target.token ||
      welcome->rank != static_cast<uint32_t>(target.peer)) {
    return failed(Outcome::kStranger,
                  status.ok() ? "something else answers" : std::string(status.message()));
  }
  // The name is empty if the peer's kernel does not tell where the connection arrived.
  const bool is_right = welcome->interface.empty() || welcome->interface == target.peer_interface;
  return {is_right ? Outcome::kConnected : Outcome::kWrongInterface, welcome->interface,
          std::move(stream)};
}

}  // namespace

Attempt connect_to(const Target& target, Service service, MaxSegment segment, Nanos deadline) {
  auto socket = net::bound_socket(target.interface, target.from);
  if (!socket.ok()) return failed(Outcome::kFailed, std::string(socket.status().message()));
  if (segment > 0) {
    setsockopt(socket->fd(), IPPROTO_TCP, TCP_MAXSEG, &segment, sizeof segment);
  }
  net::set_stream_options(socket->fd());
  const Nanos begin = now();
  if (const int error = connect(socket->fd(), target.to, deadline)) {
    return failed(error, now() - begin);
  }
  return greet(target, service, Stream(*std::move(socket)), deadline);
}

}  // namespace nezha::check
