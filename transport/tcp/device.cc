// SPDX-License-Identifier: Apache-2.0
#include "transport/tcp/device.h"

#include <sys/epoll.h>

#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "common/host.h"
#include "common/log.h"
#include "common/shortage.h"
#include "transport/framed_link.h"
#include "transport/tcp/stream.h"

namespace nezha::tcp {
namespace {

constexpr Nanos kHandshakeTimeout = 5 * kSecond;

// Reads exactly bytes.size() bytes over as many calls as it takes: a peer's hello or welcome, and
// nothing behind it, since that belongs to the link.
template <typename Bytes>
class ExactReader {
 public:
  // kUnavailable: not yet. Any other error is the connection's end.
  absl::Status read(int fd) {
    while (done_ < bytes_.size()) {
      const ssize_t got = recv(fd, bytes_.data() + done_, bytes_.size() - done_, 0);
      if (got == 0) return absl::AbortedError("the connection was closed in the handshake");
      if (got < 0 && errno == EAGAIN) return absl::UnavailableError("not yet");
      if (got < 0 && errno != EINTR) return absl::AbortedError(strerror(errno));
      if (got > 0) done_ += static_cast<size_t>(got);
    }
    return absl::OkStatus();
  }
  const Bytes& bytes() const { return bytes_; }

 private:
  Bytes bytes_{};
  size_t done_ = 0;
};

absl::Status explain(const wire::Welcome& welcome, const std::string& address) {
  switch (welcome.code) {
    case wire::WelcomeCode::kAccepted:
      return absl::OkStatus();
    case wire::WelcomeCode::kWrongVersion:
      return absl::FailedPreconditionError(absl::StrCat("the peer speaks version ", welcome.version,
                                                        " of the protocol, and ", process_name(),
                                                        " version ", wire::kVersion));
    case wire::WelcomeCode::kUnknownJob:
      return absl::NotFoundError("the peer's context is closed");
    case wire::WelcomeCode::kWrongTarget:
      return absl::UnavailableError(absl::StrCat("another process answers at ", address));
    case wire::WelcomeCode::kNoRail:
      return absl::FailedPreconditionError("the peer has another rail at that address");
    case wire::WelcomeCode::kDuplicate:
      return absl::AlreadyExistsError("the peer keeps another connection");
    case wire::WelcomeCode::kClosing:
      return absl::PermissionDeniedError(
          absl::StrCat("the peer accepts no connection of ", process_name()));
  }
  return absl::InternalError("unreachable");
}

// What accept says when it is this process or machine that has no room, and the connection stays.
bool is_shortage(int error) {
  return error == EMFILE || error == ENFILE || error == ENOBUFS || error == ENOMEM;
}

std::unique_ptr<Link> link_over(net::Socket socket, Progress& progress,
                                Progress::RailThread* thread, RailCounters& counters) {
  return std::make_unique<FramedLink>(progress, thread,
                                      std::make_unique<TcpStream>(std::move(socket)), counters);
}

// ---- Connecting --------------------------------------------------------------------------------

class Outgoing final : public Device::Attempt, EventHandler {
 public:
  Outgoing(Progress& progress, Progress::RailThread* thread, const wire::Hello& hello,
           RailCounters& counters, std::string address, Device::Connected done)
      : progress_(progress),
        thread_(thread),
        hello_(wire::encode(hello)),
        counters_(counters),
        address_(std::move(address)),
        done_(std::move(done)),
        timeout_(progress, [this] {
          finish(absl::DeadlineExceededError(absl::StrCat("no answer from ", address_)));
        }) {}

  ~Outgoing() override {
    if (registered_) progress_.remove(socket_.fd());
  }

  void start(absl::StatusOr<net::Socket> socket, const net::Address& to) {
    timeout_.start(now() + kHandshakeTimeout);
    // The kernel's reasons are no words of the peer's: it has neither refused nor left.
    absl::Status status;
    if (!socket.ok()) status = absl::AbortedError(socket.status().message());
    if (status.ok()) {
      socket_ = *std::move(socket);
      net::set_stream_options(socket_.fd());
      if (::connect(socket_.fd(), to.sockaddr_ptr(), to.length()) != 0 && errno != EINPROGRESS) {
        status = connect_error(errno);
      } else {
        const absl::Status added = progress_.add(socket_.fd(), this, EPOLLOUT);
        registered_ = added.ok();
        if (!added.ok()) status = absl::AbortedError(added.message());
      }
    }
    if (!status.ok()) {
      // Reported by the timer: never from inside of the caller.
      early_error_ = std::move(status);
      timeout_.start(now());
    }
  }

 private:
  absl::Status connect_error(int error) const {
    const std::string text = absl::StrCat("connecting to ", address_, ": ", strerror(error));
    return error == ECONNREFUSED || error == ECONNRESET ? absl::UnavailableError(text)
                                                        : absl::AbortedError(text);
  }

  void on_events(uint32_t) override {
    if (!greeted_) {
      int error = 0;
      socklen_t length = sizeof error;
      getsockopt(socket_.fd(), SOL_SOCKET, SO_ERROR, &error, &length);
      if (error != 0) return finish(connect_error(error));
      // A fresh connection's buffer holds a hello.
      if (::send(socket_.fd(), hello_.data(), hello_.size(), MSG_NOSIGNAL) !=
          static_cast<ssize_t>(hello_.size())) {
        return finish(connect_error(errno));
      }
      greeted_ = true;
      progress_.modify(socket_.fd(), EPOLLIN);
      return;
    }
    const absl::Status status = welcome_.read(socket_.fd());
    if (absl::IsUnavailable(status)) return;
    if (!status.ok()) return finish(status);
    const auto welcome = wire::decode_welcome(welcome_.bytes());
    if (!welcome.ok()) return finish(welcome.status());
    generation_ = welcome->generation;
    finish(explain(*welcome, address_));
  }

  // The last thing done here: the callback may destroy this.
  void finish(absl::Status status) {
    if (!early_error_.ok()) status = early_error_;
    timeout_.cancel();
    if (registered_) progress_.remove(socket_.fd());
    registered_ = false;
    const Device::Connected done = std::move(done_);
    const uint32_t generation = generation_;
    if (!status.ok()) return done(std::move(status), generation);
    done(link_over(std::move(socket_), progress_, thread_, counters_), generation);
  }

  Progress& progress_;
  Progress::RailThread* thread_;
  wire::HelloBytes hello_;
  RailCounters& counters_;
  std::string address_;
  Device::Connected done_;
  Alarm timeout_;
  net::Socket socket_;
  bool registered_ = false;
  bool greeted_ = false;
  absl::Status early_error_;
  ExactReader<wire::WelcomeBytes> welcome_;
  uint32_t generation_ = 0;
};

}  // namespace

// ---- Accepting ---------------------------------------------------------------------------------

class TcpDevice::Incoming final : public EventHandler {
 public:
  Incoming(TcpDevice& device, net::Socket socket)
      : device_(device),
        socket_(std::move(socket)),
        timeout_(device.progress_, [this] { device_.drop(*this); }) {}

  ~Incoming() override {
    if (registered_) device_.progress_.remove(socket_.fd());
  }

  absl::Status start() {
    timeout_.start(now() + kHandshakeTimeout);
    absl::Status status = device_.progress_.add(socket_.fd(), this, EPOLLIN);
    registered_ = status.ok();
    return status;
  }

  const wire::HelloBytes& hello() const { return hello_.bytes(); }
  int fd() const { return socket_.fd(); }
  net::Socket take_socket() {
    device_.progress_.remove(socket_.fd());
    registered_ = false;
    return std::move(socket_);
  }

 private:
  void on_events(uint32_t) override {
    const absl::Status status = hello_.read(socket_.fd());
    if (absl::IsUnavailable(status)) return;
    if (!status.ok()) return device_.drop(*this);
    device_.finish(*this);
  }

  TcpDevice& device_;
  net::Socket socket_;
  Alarm timeout_;
  bool registered_ = false;
  ExactReader<wire::HelloBytes> hello_;
};

void TcpDevice::on_events(uint32_t) {
  for (;;) {
    net::Socket socket(accept4(listener_.fd(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (socket.fd() < 0) {
      if (is_shortage(errno)) stop_accepting(errno);
      return;
    }
    short_of_means_ = false;
    if (incoming_.size() >= kMaxIncoming) continue;
    net::set_stream_options(socket.fd());
    auto incoming = std::make_unique<Incoming>(*this, std::move(socket));
    if (!incoming->start().ok()) continue;
    incoming_.emplace(incoming.get(), std::move(incoming));
  }
}

// The listener stays readable: to go on watching it would be to spin.
void TcpDevice::stop_accepting(int error) {
  if (!short_of_means_) {
    log().warn(
        "{}: connections have to wait: accept: {}; raise the limit (ulimit -n) or close files",
        name(), strerror(error));
  }
  short_of_means_ = true;
  progress_.modify(listener_.fd(), 0);
  accept_again_.start(now() + kAcceptPause);
}

void TcpDevice::drop(const Incoming& incoming) { incoming_.erase(&incoming); }

void TcpDevice::finish(Incoming& incoming) {
  const auto hello = wire::decode_hello(incoming.hello());
  wire::Welcome welcome;
  if (hello.ok()) {
    welcome = acceptor_.on_hello(rail(), *hello);
  } else if (absl::IsFailedPrecondition(hello.status())) {
    welcome.code = wire::WelcomeCode::kWrongVersion;
  } else {
    log().warn("{}: {}", name(), std::string(hello.status().message()));
    return drop(incoming);
  }
  const wire::WelcomeBytes bytes = wire::encode(welcome);
  const ssize_t sent = send(incoming.fd(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
  const bool told = sent == static_cast<ssize_t>(bytes.size());
  net::Socket socket = incoming.take_socket();
  drop(incoming);
  if (!told || welcome.code != wire::WelcomeCode::kAccepted) return;
  acceptor_.on_accepted(rail(), *hello,
                        link_over(std::move(socket), progress_, thread_, counters()));
}

// ---- The device --------------------------------------------------------------------------------

TcpDevice::TcpDevice(Progress& progress, Acceptor& acceptor, Rail rail,
                     const DeviceOptions& options)
    : Device(options.rail, rail),
      progress_(progress),
      acceptor_(acceptor),
      options_(options),
      accept_again_(progress, [this] { progress_.modify(listener_.fd(), EPOLLIN); }),
      listen_again_(progress, [this] { listen_again(); }) {}

absl::StatusOr<std::unique_ptr<TcpDevice>> TcpDevice::create(Progress& progress, Acceptor& acceptor,
                                                             Rail rail,
                                                             const DeviceOptions& options) {
  std::unique_ptr<TcpDevice> device(new TcpDevice(progress, acceptor, rail, options));
  if (absl::Status status = device->open(); !status.ok()) return status;
  if (options.cpus.empty()) return device;
  const auto thread = progress.start_rail_thread(options.interface, options.cpus);
  if (!thread.ok()) return thread.status();
  device->thread_ = *thread;
  return device;
}

// The interface is looked at before the listener is bound to it: what happens to it in between is
// seen later.
absl::Status TcpDevice::open() {
  auto monitor =
      InterfaceMonitor::create(progress_, options_.interface,
                               [this](const net::InterfaceState& state) { on_interface(state); });
  if (!monitor.ok()) return monitor.status();
  monitor_ = *std::move(monitor);
  const net::InterfaceState& state = monitor_->state();
  if (state.index == 0) return net::no_such_interface(options_.interface);
  const auto address = net::choose_address(options_.interface, state.addresses, options_.address);
  if (!address.ok()) return address.status();
  index_ = state.index;
  address_ = home_ = *address;
  carrier_ = state.is_running;
  const std::string where = absl::StrCat(address_.host(), " on ", options_.interface);
  return listen_by(net::open_in_range(options_.ports, where,
                                      [this](uint16_t port) { return listener_at(port); }));
}

// Whether the address, but for the port, is this device's: it leads to this host.
bool TcpDevice::is_own(const net::Address& address) const {
  return address.host() == address_.host();
}

// At any port if that is 0.
absl::StatusOr<net::Socket> TcpDevice::listener_at(uint16_t port) const {
  net::Address at = address_;
  at.set_port(port);
  return net::listening_socket(options_.interface, at);
}

absl::Status TcpDevice::listen_by(absl::StatusOr<net::Socket> socket) {
  if (!socket.ok()) return socket.status();
  const auto bound = net::local_address(socket->fd());
  if (!bound.ok()) return bound.status();
  if (absl::Status status = progress_.add(socket->fd(), this, EPOLLIN); !status.ok()) return status;
  listener_ = *std::move(socket);
  port_ = bound->port();
  published_ = bound->str();
  return absl::OkStatus();
}

void TcpDevice::stop_listening() {
  accept_again_.cancel();
  listen_again_.cancel();
  if (listener_.fd() >= 0) progress_.remove(listener_.fd());
  listener_ = net::Socket();
}

TcpDevice::~TcpDevice() { stop_listening(); }

// ---- An interface that changes -----------------------------------------------------------------

void TcpDevice::on_interface(const net::InterfaceState& state) {
  if (state.index == 0) return set_carrier(false, "the interface is gone");
  const auto address = choose(state);
  if (address.ok() && !is_at(state, *address)) move(state, *address);
  if (!address.ok()) return set_carrier(false, address.status().message());
  set_carrier(state.is_running, "the interface lost its carrier");
}

// The device goes to its first address if the interface has that. Otherwise it stays at its present
// address, or takes another one from which peers can be reached. An address that the kernel is only
// now checking for duplicates will do for the listener that has it already.
absl::StatusOr<net::Address> TcpDevice::choose(const net::InterfaceState& state) const {
  for (const net::Address& wanted : {home_, address_}) {
    for (const net::AssignedAddress& it : state.addresses) {
      if (it.address.host() != wanted.host() || it.is_duplicate) continue;
      if (it.is_usable() || is_at(state, it.address)) return it.address;
      return absl::UnavailableError("the interface's address is being checked for duplicates");
    }
  }
  std::vector<net::AssignedAddress> alike;
  for (const net::AssignedAddress& it : state.addresses) {
    if (it.address.is_link_local() == home_.is_link_local()) alike.push_back(it);
  }
  const net::AddressWish wish{.family = home_.family(), .named = options_.address.named};
  auto other = net::choose_address(options_.interface, alike, wish);
  if (other.ok()) return other;
  return absl::UnavailableError("the interface has lost its address");
}

// Returns whether the listener is bound to this interface and address.
bool TcpDevice::is_at(const net::InterfaceState& state, const net::Address& address) const {
  return state.index == index_ && address == address_;
}

void TcpDevice::move(const net::InterfaceState& state, const net::Address& to) {
  const std::string why =
      state.index != index_
          ? "the interface was made anew"
          : absl::StrCat("the interface's address ", address_.host(), " gave way to ", to.host());
  set_carrier(false, why);
  stop_listening();
  incoming_.clear();
  index_ = state.index;
  address_ = to;
  log().info("{}: {}; listening at {} from now on", name(), why, to.host());
  listen_again();
}

void TcpDevice::listen_again() {
  const absl::Status status = listen_by(listener_at(port_));
  if (!status.ok()) {
    if (!has_told_) {
      log().warn("{}: peers cannot connect for now: {}; tried again until it succeeds", name(),
                 std::string(status.message()));
    }
    listen_again_.start(now() + kListenPause);
  }
  has_told_ = !status.ok();
}

void TcpDevice::set_carrier(bool up, absl::string_view why) {
  if (up == carrier_) return;
  carrier_ = up;
  acceptor_.on_carrier(rail(), up, why);
}

// ---- Connecting --------------------------------------------------------------------------------

absl::Status TcpDevice::can_reach(absl::string_view address) const {
  const absl::StatusOr<net::Address> to = net::Address::parse(address);
  if (!to.ok() || to->family() == address_.family()) return to.status();
  return absl::FailedPreconditionError(
      absl::StrCat("the peer's address ", address, " and ", published_, " of host ", host_name(),
                   " are not of one family; choose one with ?family=4 or ?family=6"));
}

std::unique_ptr<Device::Attempt> TcpDevice::connect(absl::string_view address,
                                                    const wire::Hello& hello, Connected done) {
  absl::StatusOr<net::Address> to = net::Address::parse(address);
  auto attempt = std::make_unique<Outgoing>(
      progress_, thread_, hello, counters(),
      absl::StrCat(address, to.ok() && is_own(*to)
                                ? absl::StrCat(" (an address of host ", host_name(), ")")
                                : ""),
      std::move(done));
  if (absl::Status status = can_reach(address); !status.ok()) {
    attempt->start(std::move(status), {});
  } else {
    if (to->is_link_local()) to->set_scope(static_cast<unsigned>(index_));
    attempt->start(net::bound_socket(options_.interface, address_), *to);
  }
  return attempt;
}

}  // namespace nezha::tcp
