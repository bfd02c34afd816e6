#include "transport/tcp/device.h"

#include <net/if.h>
#include <sys/epoll.h>

#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "common/log.h"
#include "common/shortage.h"
#include "transport/tcp/link.h"

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

absl::Status explain(const wire::Welcome& welcome) {
  switch (welcome.code) {
    case wire::WelcomeCode::kAccepted:
      return absl::OkStatus();
    case wire::WelcomeCode::kWrongVersion:
      return absl::FailedPreconditionError(absl::StrCat("the peer speaks version ", welcome.version,
                                                        " of the protocol, this process ",
                                                        wire::kVersion));
    case wire::WelcomeCode::kUnknownJob:
      return absl::NotFoundError("the peer's context is closed");
    case wire::WelcomeCode::kWrongTarget:
      return absl::UnavailableError("another process has the peer's address");
    case wire::WelcomeCode::kNoRail:
      return absl::FailedPreconditionError("the peer has another rail at that address");
    case wire::WelcomeCode::kDuplicate:
      return absl::AlreadyExistsError("the peer keeps another connection");
    case wire::WelcomeCode::kClosing:
      return absl::UnavailableError("the peer is closing");
  }
  return absl::InternalError("unreachable");
}

// What accept says when it is this process or machine that has no room, and the connection stays.
bool is_shortage(int error) {
  return error == EMFILE || error == ENFILE || error == ENOBUFS || error == ENOMEM;
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

  void start(absl::StatusOr<Socket> socket, const Address& to) {
    timeout_.start(now() + kHandshakeTimeout);
    absl::Status status = socket.status();
    if (status.ok()) {
      socket_ = *std::move(socket);
      set_stream_options(socket_.fd());
      if (::connect(socket_.fd(), to.sockaddr_ptr(), to.length()) != 0 && errno != EINPROGRESS) {
        status = connect_error(errno);
      } else {
        status = progress_.add(socket_.fd(), this, EPOLLOUT);
        registered_ = status.ok();
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
    finish(explain(*welcome));
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
    done(std::make_unique<TcpLink>(progress_, thread_, std::move(socket_), counters_), generation);
  }

  Progress& progress_;
  Progress::RailThread* thread_;
  wire::HelloBytes hello_;
  RailCounters& counters_;
  std::string address_;
  Device::Connected done_;
  Alarm timeout_;
  Socket socket_;
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
  Incoming(TcpDevice& device, Socket socket)
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
  Socket take_socket() {
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
  Socket socket_;
  Alarm timeout_;
  bool registered_ = false;
  ExactReader<wire::HelloBytes> hello_;
};

void TcpDevice::on_events(uint32_t) {
  for (;;) {
    Socket socket(accept4(listener_.fd(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (socket.fd() < 0) {
      if (is_shortage(errno)) stop_accepting(errno);
      return;
    }
    short_of_means_ = false;
    if (incoming_.size() >= kMaxIncoming) continue;
    set_stream_options(socket.fd());
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
  Socket socket = incoming.take_socket();
  drop(incoming);
  if (!told || welcome.code != wire::WelcomeCode::kAccepted) return;
  acceptor_.on_accepted(
      rail(), *hello, std::make_unique<TcpLink>(progress_, thread_, std::move(socket), counters()));
}

// ---- The device --------------------------------------------------------------------------------

TcpDevice::TcpDevice(Progress& progress, Acceptor& acceptor, Rail rail,
                     const DeviceOptions& options)
    : Device(options.rail, rail),
      progress_(progress),
      acceptor_(acceptor),
      options_(options),
      accept_again_(progress, [this] { progress_.modify(listener_.fd(), EPOLLIN); }) {}

absl::StatusOr<std::unique_ptr<TcpDevice>> TcpDevice::create(Progress& progress, Acceptor& acceptor,
                                                             Rail rail,
                                                             const DeviceOptions& options) {
  std::unique_ptr<TcpDevice> device(new TcpDevice(progress, acceptor, rail, options));
  if (absl::Status status = device->listen(options.family); !status.ok()) return status;
  device->carrier_ = interface_running(options.interface);
  auto monitor = CarrierMonitor::create(progress, options.interface, [d = device.get()](bool up) {
    if (up == d->carrier_) return;
    d->carrier_ = up;
    d->acceptor_.on_carrier(d->rail(), up);
  });
  if (!monitor.ok()) return monitor.status();
  device->monitor_ = *std::move(monitor);
  if (options.cpus.empty()) return device;
  const auto thread = progress.start_rail_thread(options.interface, options.cpus);
  if (!thread.ok()) return thread.status();
  device->thread_ = *thread;
  return device;
}

absl::Status TcpDevice::listen(int family) {
  auto address = interface_address(options_.interface, family);
  if (!address.ok()) return address.status();
  address_ = *address;
  auto socket = bound_socket(options_.interface, address_);
  if (!socket.ok()) return socket.status();
  listener_ = *std::move(socket);
  if (::listen(listener_.fd(), SOMAXCONN) != 0) {
    return system_error(errno, absl::StrCat("listening on ", options_.interface));
  }
  const auto bound = local_address(listener_.fd());
  if (!bound.ok()) return bound.status();
  published_ = bound->str();
  return progress_.add(listener_.fd(), this, EPOLLIN);
}

TcpDevice::~TcpDevice() {
  if (!published_.empty()) progress_.remove(listener_.fd());
}

absl::Status TcpDevice::can_reach(absl::string_view address) const {
  const absl::StatusOr<Address> to = Address::parse(address);
  if (!to.ok() || to->family() == address_.family()) return to.status();
  return absl::FailedPreconditionError(
      absl::StrCat("the peer's address ", address, " and this device's ", published_,
                   " are not of one family; choose one with ?family=4 or ?family=6"));
}

std::unique_ptr<Device::Attempt> TcpDevice::connect(absl::string_view address,
                                                    const wire::Hello& hello, Connected done) {
  auto attempt = std::make_unique<Outgoing>(progress_, thread_, hello, counters(),
                                            std::string(address), std::move(done));
  if (absl::Status status = can_reach(address); !status.ok()) {
    attempt->start(std::move(status), {});
  } else {
    absl::StatusOr<Address> to = Address::parse(address);
    if (to->is_link_local()) to->set_scope(if_nametoindex(options_.interface.c_str()));
    attempt->start(bound_socket(options_.interface, address_), *to);
  }
  return attempt;
}

}  // namespace nezha::tcp
