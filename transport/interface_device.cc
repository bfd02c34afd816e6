// SPDX-License-Identifier: Apache-2.0
#include "transport/interface_device.h"

#include <sys/epoll.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "common/host.h"
#include "common/log.h"

namespace nezha {
namespace {

constexpr absl::string_view kPlainKind = "tcp";  // its addresses do not name it

// Returns whether accept failed because this process or machine has no room. The connection stays
// then.
bool is_shortage(int error) {
  return error == EMFILE || error == ENFILE || error == ENOBUFS || error == ENOMEM;
}

}  // namespace

// ---- Accepting ---------------------------------------------------------------------------------

void InterfaceDevice::on_events(uint32_t) {
  LinkMaker& maker = *this;
  for (;;) {
    net::Address from;
    socklen_t length = sizeof from.storage;
    net::Socket socket(
        accept4(listener_.fd(), from.sockaddr_ptr(), &length, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (socket.fd() < 0) {
      if (is_shortage(errno)) stop_accepting(errno);
      return;
    }
    short_of_means_ = false;
    if (incoming_.size() >= kMaxIncoming) continue;
    net::set_stream_options(socket.fd());
    auto incoming = std::make_unique<IncomingHandshake>(
        progress_, acceptor_, *this, maker, std::move(socket), from,
        [this](const IncomingHandshake& it, const wire::Hello& hello,
               absl::StatusOr<std::unique_ptr<Link>> link) {
          on_over(it, hello, std::move(link));
        });
    if (!incoming->start().ok()) continue;
    incoming_.emplace(incoming.get(), std::move(incoming));
  }
}

// The listener stays readable, so a loop that went on watching it would spin.
void InterfaceDevice::stop_accepting(int error) {
  if (!short_of_means_) {
    log().warn(
        "{}: accepting a connection failed: {}; peers wait until it succeeds; raise the limit of "
        "open files (ulimit -n), or close some",
        name(), strerror(error));
  }
  short_of_means_ = true;
  progress_.modify(listener_.fd(), 0);
  accept_again_.start(now() + kAcceptPause);
}

// A reason is logged once, since the peer tries again and again.
void InterfaceDevice::on_over(const IncomingHandshake& incoming, const wire::Hello& hello,
                              absl::StatusOr<std::unique_ptr<Link>> link) {
  const net::Address from = incoming.from();
  incoming_.erase(&incoming);
  if (!link.ok()) {
    const std::string why(link.status().message());
    if (why != no_link_) {
      log().warn("{}: the connection of a process at {} was closed, because no link came of it: {}",
                 name(), from.host(), why);
    }
    no_link_ = why;
    return;
  }
  if (*link == nullptr) return;
  no_link_.clear();
  acceptor_.on_accepted(rail(), hello, *std::move(link));
}

// ---- The device --------------------------------------------------------------------------------

InterfaceDevice::InterfaceDevice(Progress& progress, Acceptor& acceptor, Rail rail,
                                 InterfaceOptions options)
    : Device(options.rail, rail),
      progress_(progress),
      acceptor_(acceptor),
      options_(std::move(options)),
      accept_again_(progress, [this] { progress_.modify(listener_.fd(), EPOLLIN); }),
      listen_again_(progress, [this] { listen_again(); }) {}

// The interface is looked at before the listener is bound to it, so that a change in between is
// seen later.
absl::Status InterfaceDevice::open() {
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
  has_carrier_ = state.is_running;
  const std::string where = absl::StrCat(address_.host(), " on ", options_.interface);
  return listen_by(net::open_in_range(options_.ports, where,
                                      [this](uint16_t port) { return listener_at(port); }));
}

// Returns whether the address, but for the port, is this device's: then it leads to this host.
bool InterfaceDevice::is_own(const net::Address& address) const {
  return address.host() == address_.host();
}

// Listens at any port if `port` is 0.
absl::StatusOr<net::Socket> InterfaceDevice::listener_at(uint16_t port) const {
  net::Address at = address_;
  at.set_port(port);
  return net::listening_socket(options_.interface, at);
}

absl::Status InterfaceDevice::listen_by(absl::StatusOr<net::Socket> socket) {
  if (!socket.ok()) return socket.status();
  const auto bound = net::local_address(socket->fd());
  if (!bound.ok()) return bound.status();
  if (absl::Status status = progress_.add(socket->fd(), this, EPOLLIN); !status.ok()) return status;
  listener_ = *std::move(socket);
  port_ = bound->port();
  published_ = kind() == kPlainKind ? bound->str() : absl::StrCat(kind(), ":", bound->str());
  return absl::OkStatus();
}

void InterfaceDevice::stop_listening() {
  accept_again_.cancel();
  listen_again_.cancel();
  if (listener_.fd() >= 0) progress_.remove(listener_.fd());
  listener_ = net::Socket();
}

InterfaceDevice::~InterfaceDevice() { stop_listening(); }

// ---- An interface that changes -----------------------------------------------------------------

void InterfaceDevice::on_interface(const net::InterfaceState& state) {
  if (state.index == 0) return set_carrier(false, "the interface is gone");
  const auto address = choose(state);
  if (address.ok() && !is_at(state, *address)) move(state, *address);
  if (!address.ok()) return set_carrier(false, address.status().message());
  set_carrier(state.is_running, "the interface lost its carrier");
}

// The device goes to its first address if the interface has that. Otherwise it stays at its present
// address, or takes another one from which peers can be reached. An address that the kernel is only
// now checking for duplicates will do for the listener that has it already.
absl::StatusOr<net::Address> InterfaceDevice::choose(const net::InterfaceState& state) const {
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
bool InterfaceDevice::is_at(const net::InterfaceState& state, const net::Address& address) const {
  return state.index == index_ && address == address_;
}

void InterfaceDevice::move(const net::InterfaceState& state, const net::Address& to) {
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
  on_moved();
}

void InterfaceDevice::listen_again() {
  const absl::Status status = listen_by(listener_at(port_));
  if (!status.ok()) {
    if (!has_told_) {
      log().warn("{}: peers cannot connect for now: {}; nezha tries again until it can listen",
                 name(), std::string(status.message()));
    }
    listen_again_.start(now() + kListenPause);
  }
  has_told_ = !status.ok();
}

void InterfaceDevice::set_carrier(bool up, absl::string_view why) {
  const bool was_up = carrier();
  has_carrier_ = up;
  tell_of_carrier(was_up, why);
}

void InterfaceDevice::set_usable(bool is_usable, absl::string_view why) {
  const bool was_up = carrier();
  is_usable_ = is_usable;
  if (!is_usable) incoming_.clear();
  tell_of_carrier(was_up, why);
}

void InterfaceDevice::tell_of_carrier(bool was_up, absl::string_view why) {
  if (carrier() != was_up) acceptor_.on_carrier(rail(), carrier(), why);
}

// ---- Connecting --------------------------------------------------------------------------------

// Parses an address as a device of this kind publishes it. An address of another kind is an error
// that says so.
absl::StatusOr<net::Address> InterfaceDevice::parse(absl::string_view address) const {
  absl::string_view peers_kind = kPlainKind;
  if (!address.empty() && absl::ascii_isalpha(static_cast<unsigned char>(address[0]))) {
    peers_kind = address.substr(0, address.find(':'));
    address.remove_prefix(std::min(peers_kind.size() + 1, address.size()));
  }
  if (peers_kind == kind()) return net::Address::parse(address);
  return absl::FailedPreconditionError(
      absl::StrCat("the peer's rail ", name(), " is of kind ", peers_kind, ", and that of host ",
                   host_name(), " of kind ", kind(),
                   "; a rail is of one kind on all ranks, so name them differently (?rail=NAME)"));
}

absl::Status InterfaceDevice::can_reach(absl::string_view address) const {
  const absl::StatusOr<net::Address> to = parse(address);
  if (!to.ok() || to->family() == address_.family()) return to.status();
  return absl::FailedPreconditionError(
      absl::StrCat("the peer's address ", address, " and ", published_, " of host ", host_name(),
                   " are not of one family; choose one with ?family=4 or ?family=6"));
}

std::unique_ptr<Device::Attempt> InterfaceDevice::connect(absl::string_view address,
                                                          const wire::Hello& hello,
                                                          Connected done) {
  absl::StatusOr<net::Address> to = parse(address);
  auto attempt = std::make_unique<OutgoingHandshake>(
      progress_, hello,
      absl::StrCat(address, to.ok() && is_own(*to)
                                ? absl::StrCat(" (an address of host ", host_name(), ")")
                                : ""),
      std::move(done));
  if (absl::Status status = can_reach(address); !status.ok()) {
    attempt->start(std::move(status), {}, *this);
  } else {
    if (to->is_link_local()) to->set_scope(static_cast<unsigned>(index_));
    attempt->start(net::bound_socket(options_.interface, address_), *to, *this);
  }
  return attempt;
}

}  // namespace nezha
