// SPDX-License-Identifier: Apache-2.0
#include "check/server.h"

#include <net/if.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <string>

#include "absl/strings/str_cat.h"
#include "check/frames.h"
#include "check/speed.h"
#include "common/shortage.h"

namespace nezha::check {
namespace {

constexpr Nanos kHelloPatience = 5 * kSecond;
constexpr Nanos kServicePatience = 5 * kSecond;
constexpr int kAcceptPause = 100;  // milliseconds, when there is no descriptor

// The listener is not bound to the interface, unlike those of the library: a connection that
// arrives at another interface is accepted too, so that the fault can be told. The SYN-ACK is
// therefore not bound either and follows the routes. answer() binds the connection before anything
// is measured.
absl::StatusOr<net::Socket> listen_at(net::Address address, uint16_t port) {
  address.set_port(port);
  net::Socket made(socket(address.family(), SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (made.fd() < 0) return system_error(errno, "making a socket");
  const int on = 1;
  setsockopt(made.fd(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (address.family() == AF_INET6) {
    setsockopt(made.fd(), IPPROTO_IPV6, IPV6_RECVPKTINFO, &on, sizeof on);
  } else {
    setsockopt(made.fd(), IPPROTO_IP, IP_PKTINFO, &on, sizeof on);
  }
  if (bind(made.fd(), address.sockaddr_ptr(), address.length()) == 0 &&
      listen(made.fd(), SOMAXCONN) == 0) {
    return made;
  }
  const int error = errno;
  const std::string what = absl::StrCat("listening at ", address.str());
  if (error == EADDRINUSE) return absl::AlreadyExistsError(what);
  return system_error(error, what);
}

// Returns the interface at which the connection's first packet arrived: ip(7) and ipv6(7) keep it
// for TCP as they do for datagrams. The name is empty if the kernel does not tell.
std::string arrival_interface(int fd) {
  alignas(cmsghdr) std::array<char, 256> control{};
  msghdr message{};
  auto length = static_cast<socklen_t>(control.size());
  const bool is_ipv6 = net::local_address(fd).value_or(net::Address()).family() == AF_INET6;
  const int level = is_ipv6 ? static_cast<int>(IPPROTO_IPV6) : static_cast<int>(IPPROTO_IP);
  const int option = is_ipv6 ? IPV6_2292PKTOPTIONS : IP_PKTOPTIONS;
  if (getsockopt(fd, level, option, control.data(), &length) != 0) return "";
  message.msg_control = control.data();
  message.msg_controllen = length;
  unsigned index = 0;
  for (cmsghdr* head = CMSG_FIRSTHDR(&message); head != nullptr;
       head = CMSG_NXTHDR(&message, head)) {
    if (is_ipv6 && head->cmsg_type == IPV6_PKTINFO) {
      in6_pktinfo info{};
      std::memcpy(&info, CMSG_DATA(head), sizeof info);
      index = info.ipi6_ifindex;
    } else if (!is_ipv6 && head->cmsg_type == IP_PKTINFO) {
      in_pktinfo info{};
      std::memcpy(&info, CMSG_DATA(head), sizeof info);
      index = static_cast<unsigned>(info.ipi_ifindex);
    }
  }
  std::array<char, IF_NAMESIZE> name{};
  return index != 0 && if_indextoname(index, name.data()) != nullptr ? name.data() : "";
}

void carry_out(Service service, Stream& stream) {
  const Nanos deadline = now() + kServicePatience;
  switch (service) {
    case Service::kGreet:
      return;
    case Service::kTakeFrame:
      return take_frame(stream, deadline).IgnoreError();
    case Service::kGiveFrame:
      return give_frame(stream, deadline).IgnoreError();
    case Service::kEcho:
      return echo(stream, deadline);
    case Service::kTake:
      return take(stream, deadline);
    case Service::kGive:
      return give(stream, deadline);
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<Server>> Server::create(std::vector<OwnRail>& rails,
                                                       const PortRange& ports) {
  std::unique_ptr<Server> server(new Server);
  for (size_t i = 0; i < rails.size(); ++i) {
    RailEnd& end = rails[i].end;
    if (!end.error.empty()) continue;
    const std::string where = absl::StrCat(end.address, " on ", end.interface);
    auto socket = net::open_in_range(
        ports, where, [&](uint16_t port) { return listen_at(rails[i].address, port); });
    const auto bound = socket.ok() ? net::local_address(socket->fd()) : socket.status();
    if (!bound.ok()) {
      end.error = std::string(bound.status().message());
      continue;
    }
    end.port = bound->port();
    server->listeners_.push_back({*std::move(socket), static_cast<uint32_t>(i), end.interface});
  }
  server->wake_ = net::Socket(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (server->wake_.fd() < 0) return system_error(errno, "making an event descriptor");
  return server;
}

absl::Status Server::start(int rank, int size, const UniqueId& token) {
  rank_ = static_cast<uint32_t>(rank);
  size_ = static_cast<uint32_t>(size);
  token_ = token;
  auto thread = start_thread([this] { run(); });
  if (!thread.ok()) return thread.status();
  thread_ = *std::move(thread);
  return absl::OkStatus();
}

Server::~Server() {
  const uint64_t one = 1;
  if (thread_.joinable()) {
    (void)!write(wake_.fd(), &one, sizeof one);
    thread_.join();
  }
  for (Running& running : services_) {
    shutdown(running.work->stream.fd(), SHUT_RDWR);  // which ends its waits
    running.thread.join();
  }
}

void Server::run() {
  for (;;) {
    std::vector<pollfd> wanted{{wake_.fd(), POLLIN, 0}};
    for (const Listener& listener : listeners_) wanted.push_back({listener.socket.fd(), POLLIN, 0});
    for (const Stranger& stranger : strangers_) wanted.push_back({stranger.stream.fd(), POLLIN, 0});
    const int patience = strangers_.empty() ? -1 : 1000;
    if (poll(wanted.data(), wanted.size(), patience) < 0) continue;
    if (wanted[0].revents != 0) return;
    size_t next = 1 + listeners_.size();
    for (auto it = strangers_.begin(); it != strangers_.end(); ++next) {
      const bool is_ready = wanted[next].revents != 0;
      const bool stays = is_ready ? read_hello(*it) : now() < it->deadline;
      it = stays ? std::next(it) : strangers_.erase(it);
    }
    for (size_t i = 0; i < listeners_.size(); ++i) {
      if (wanted[1 + i].revents != 0) accept(listeners_[i]);
    }
    join_those_that_are_over();
  }
}

void Server::accept(const Listener& listener) {
  net::Socket socket(accept4(listener.socket.fd(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
  if (socket.fd() < 0) {
    // The listener stays readable without a descriptor for the connection.
    if (errno == EMFILE || errno == ENFILE) poll(nullptr, 0, kAcceptPause);
    return;
  }
  if (strangers_.size() >= kMaxStrangers) strangers_.pop_front();
  net::set_stream_options(socket.fd());
  strangers_.emplace_back(std::move(socket), listener.rail, listener.interface,
                          now() + kHelloPatience);
}

// Reads what has come of the hello. Returns false if the stranger is to be dropped, or if its
// connection has been taken.
bool Server::read_hello(Stranger& stranger) {
  const auto rest = absl::MakeSpan(stranger.hello).subspan(stranger.done);
  const ssize_t got = recv(stranger.stream.fd(), rest.data(), rest.size(), MSG_DONTWAIT);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return true;
  if (got <= 0) return false;
  stranger.done += static_cast<size_t>(got);
  if (stranger.done < stranger.hello.size()) return now() < stranger.deadline;
  answer(stranger);
  return false;
}

void Server::answer(Stranger& stranger) {
  const auto hello = decode_hello(stranger.hello);
  const bool is_ours = hello && hello->token == token_ && hello->from < size_ &&
                       hello->to == rank_ && hello->rail == stranger.rail;
  if (!is_ours) return;
  const Welcome welcome{token_, rank_, arrival_interface(stranger.stream.fd())};
  // The replies of an unbound socket follow the routes, and another rail of the same subnet would
  // carry what is measured of this one. A kernel that refuses to bind refuses this rank's own
  // connections too, and those tell why.
  if (welcome.interface == stranger.interface) {
    net::bind_to_interface(stranger.stream.fd(), stranger.interface).IgnoreError();
  }
  // A fresh connection's buffer holds a welcome.
  if (!stranger.stream.send(encode(welcome), now()).ok()) return;
  if (hello->service != Service::kGreet) serve(hello->service, std::move(stranger.stream));
}

void Server::serve(Service service, Stream stream) {
  if (services_.size() >= kMaxServices) return;
  auto work = std::make_shared<Work>(std::move(stream));
  net::reset_on_close(work->stream.fd());
  auto thread = start_thread([service, work] {
    carry_out(service, work->stream);
    shutdown(work->stream.fd(), SHUT_RDWR);  // it is closed once the thread is joined
    work->is_over = true;
  });
  if (thread.ok()) services_.push_back({*std::move(thread), std::move(work)});
}

void Server::join_those_that_are_over() {
  for (auto it = services_.begin(); it != services_.end();) {
    if (!it->work->is_over) {
      ++it;
      continue;
    }
    it->thread.join();
    it = services_.erase(it);
  }
}

}  // namespace nezha::check
