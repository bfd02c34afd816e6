// SPDX-License-Identifier: Apache-2.0
#include "transport/rdma/connection_manager.h"

#include <fcntl.h>
#include <rdma/rdma_user_cm.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "common/fields.h"

namespace nezha::rdma {
namespace {

constexpr const char* kFile = "/dev/infiniband/rdma_cm";
constexpr uint64_t kListener = 0;  // what the listener's events carry
constexpr int kBacklog = 1024;
constexpr uint32_t kResolveTimeout = 2000;  // ms
constexpr int kTries = 8;                   // tries, if the kernel chooses the port
constexpr uint8_t kReliableConnection = 2;  // IB_QPT_RC

// The types of events (rdma_cm_event_type), which the kernel's headers for programs do not have.
enum class Event : uint32_t {
  kAddressResolved = 0,
  kAddressError = 1,
  kRouteResolved = 2,
  kRouteError = 3,
  kRequest = 4,
  kConnectError = 6,
  kUnreachable = 7,
  kRejected = 8,
  kEstablished = 9,
  kDisconnected = 10,
  kDeviceGone = 11,
};

// Asks the kernel's connection manager. If that fails, errno says why.
template <typename Command>
bool ask(int fd, uint32_t command, const Command& body, uint16_t answer_size = 0) {
  const struct Request {
    rdma_ucm_cmd_hdr header;
    Command body;
  } request = {.header = {.cmd = command, .in = sizeof body, .out = answer_size}, .body = body};
  static_assert(sizeof(Request) == sizeof(rdma_ucm_cmd_hdr) + sizeof(Command));
  return ::write(fd, &request, sizeof request) == static_cast<ssize_t>(sizeof request);
}

template <typename Answer>
uint64_t place_of(Answer& answer) {
  return reinterpret_cast<uintptr_t>(&answer);
}

// Creates an identifier, whose events carry `user`.
bool create(int fd, uint64_t user, uint32_t& id) {
  rdma_ucm_create_id_resp answer{};
  const rdma_ucm_create_id command{.uid = user,
                                   .response = place_of(answer),
                                   .ps = RDMA_PS_TCP,
                                   .qp_type = kReliableConnection,
                                   .reserved = {}};
  if (!ask(fd, RDMA_USER_CM_CMD_CREATE_ID, command, sizeof answer)) return false;
  id = answer.id;
  return true;
}

void destroy(int fd, uint32_t id) {
  rdma_ucm_destroy_id_resp answer{};
  const rdma_ucm_destroy_id command{.response = place_of(answer), .id = id, .reserved = 0};
  ask(fd, RDMA_USER_CM_CMD_DESTROY_ID, command, sizeof answer);
}

void put(const net::Address& address, __kernel_sockaddr_storage& out) {
  static_assert(sizeof out == sizeof address.storage);
  std::memcpy(&out, &address.storage, sizeof out);
}

rdma_ucm_conn_param parameters(const ConnectionManager::Pair& pair) {
  rdma_ucm_conn_param parameters{};
  parameters.qp_num = pair.number;
  parameters.initiator_depth = pair.reads_asked;
  parameters.responder_resources = pair.reads_answered;
  parameters.valid = 1;
  return parameters;
}

}  // namespace

absl::Status ConnectionManager::error_of(absl::string_view what, int error) const {
  const std::string text = absl::StrCat(device_.name, ": ", what, ": ", strerror(error));
  return error == EADDRINUSE ? absl::AlreadyExistsError(text) : absl::AbortedError(text);
}

// ---- Listening ---------------------------------------------------------------------------------

absl::StatusOr<std::unique_ptr<ConnectionManager>> ConnectionManager::open(Progress& progress,
                                                                           const Device& device,
                                                                           const PortRange& ports) {
  std::unique_ptr<ConnectionManager> manager(new ConnectionManager(progress, device));
  absl::StatusOr<net::Socket> socket = absl::AlreadyExistsError("");
  // The kernel chooses a port that no other RDMA connection has, but that a TCP socket may have.
  for (int i = 0; i < kTries && absl::IsAlreadyExists(socket.status()); ++i) {
    socket = net::open_in_range(ports, absl::StrCat(device.address.host(), " for ", device.name),
                                [&](uint16_t port) { return manager->listener_at(port); });
  }
  if (!socket.ok()) return socket.status();
  const auto port = manager->port_of(socket->fd());
  if (!port.ok()) return port.status();
  if (absl::Status status = progress.add(socket->fd(), manager.get(), EPOLLIN); !status.ok()) {
    return status;
  }
  manager->socket_ = *std::move(socket);
  manager->port_ = *port;
  return manager;
}

ConnectionManager::~ConnectionManager() {
  if (socket_.fd() >= 0) progress_.remove(socket_.fd());
}

// Opens a descriptor of the kernel's connection manager. Closing it destroys all identifiers.
absl::StatusOr<net::Socket> ConnectionManager::listener_at(uint16_t port) {
  net::Socket socket(::open(kFile, O_RDWR | O_CLOEXEC | O_NONBLOCK));
  if (socket.fd() < 0) {
    return absl::UnavailableError(absl::StrCat(
        device_.name, ": opening the kernel's connection manager, ", kFile,
        ", which makes the connections of an iWARP device: ", strerror(errno),
        errno == ENOENT ? "; load it (modprobe rdma_ucm)"
                        : "; let this process read and write it, in a container, too"));
  }
  const int fd = socket.fd();
  if (!create(fd, kListener, listener_)) return error_of("listening for iWARP", errno);
  net::Address at = device_.address;
  at.set_port(port);
  rdma_ucm_bind bind{
      .id = listener_, .addr_size = static_cast<uint16_t>(at.length()), .reserved = 0, .addr = {}};
  put(at, bind.addr);
  const rdma_ucm_listen listen{.id = listener_, .backlog = kBacklog};
  if (!ask(fd, RDMA_USER_CM_CMD_BIND, bind) || !ask(fd, RDMA_USER_CM_CMD_LISTEN, listen)) {
    return error_of(absl::StrCat("listening at ", at.str(), " for iWARP connections"), errno);
  }
  return socket;
}

// Returns the port of the listener. An address may belong to two devices, as when one interface has
// both soft-RoCE and soft-iWARP. Then the kernel may have taken the other device.
absl::StatusOr<uint16_t> ConnectionManager::port_of(int fd) const {
  rdma_ucm_query_addr_resp answer{};
  const rdma_ucm_query query{
      .response = place_of(answer), .id = listener_, .option = RDMA_USER_CM_QUERY_ADDR};
  if (!ask(fd, RDMA_USER_CM_CMD_QUERY, query, sizeof answer)) {
    return error_of("asking for the port of the listener", errno);
  }
  if (static_cast<int>(answer.ibdev_index) != device_.index) {
    return absl::FailedPreconditionError(absl::StrCat(
        "the kernel's connection manager takes another RDMA device than ", device_.name,
        " for the address ", device_.address.host(), ": take the other one off the interface"));
  }
  net::Address address;
  std::memcpy(&address.storage, &answer.src_addr, sizeof address.storage);
  return address.port();
}

// ---- Connections -------------------------------------------------------------------------------

uint64_t ConnectionManager::add(const Pair& pair) {
  uint64_t token = kListener;
  while (token == kListener || entries_.contains(token)) {
    token = uint64_t{random_()} << 32 | random_();
  }
  entries_.emplace(token, Entry{.pair = pair});
  return token;
}

void ConnectionManager::set_end(uint64_t end, ConnectionEnd* told) { entries_.at(end).end = told; }

void ConnectionManager::remove(uint64_t end) noexcept {
  const auto found = entries_.find(end);
  if (found == entries_.end()) return;
  if (found->second.id != kNone) destroy(socket_.fd(), found->second.id);
  entries_.erase(found);
}

absl::Status ConnectionManager::connect(uint64_t end, const net::Address& to, uint64_t token) {
  Entry& entry = entries_.at(end);
  if (!create(socket_.fd(), end, entry.id)) return error_of("making an iWARP connection", errno);
  entry.peers_token = token;
  const net::Address& from = device_.address;
  rdma_ucm_resolve_addr command{.id = entry.id,
                                .timeout_ms = kResolveTimeout,
                                .src_size = static_cast<uint16_t>(from.length()),
                                .dst_size = static_cast<uint16_t>(to.length()),
                                .reserved = 0,
                                .src_addr = {},
                                .dst_addr = {}};
  put(from, command.src_addr);
  put(to, command.dst_addr);
  if (ask(socket_.fd(), RDMA_USER_CM_CMD_RESOLVE_ADDR, command)) return absl::OkStatus();
  return error_of(absl::StrCat("finding the way to ", to.str()), errno);
}

void ConnectionManager::on_events(uint32_t) {
  for (;;) {
    rdma_ucm_event_resp event{};
    const rdma_ucm_get_event command{.response = place_of(event)};
    if (!ask(socket_.fd(), RDMA_USER_CM_CMD_GET_EVENT, command, sizeof event)) return;
    handle(event);
  }
}

void ConnectionManager::handle(const rdma_ucm_event_resp& event) {
  if (static_cast<Event>(event.event) == Event::kRequest) return on_request(event);
  const auto found = entries_.find(event.uid);
  // Events of a connection that has been given up are ignored.
  if (found != entries_.end() && found->second.id == event.id) go_on(found->second, event);
}

// Anybody can ask for a connection. Unless it is accepted, the identifier that the kernel made for
// it is destroyed, and the kernel rejects the connection.
void ConnectionManager::on_request(const rdma_ucm_event_resp& event) {
  const rdma_ucm_conn_param& asked = event.param.conn;
  uint64_t token = kListener;
  // A device may pad the private data with zeros.
  if (asked.private_data_len >= sizeof token) std::memcpy(&token, asked.private_data, sizeof token);
  const auto found = entries_.find(swap_if_big_endian(token));
  if (found == entries_.end() || found->second.id != kNone) return destroy(socket_.fd(), event.id);
  Entry& entry = found->second;
  entry.id = event.id;
  rdma_ucm_accept command{};
  command.uid = found->first;
  command.id = event.id;
  command.conn_param = parameters(entry.pair);
  auto& own = command.conn_param;  // the kernel gives the peer's numbers as seen from this end
  own.initiator_depth = std::min(own.initiator_depth, asked.initiator_depth);
  own.responder_resources = std::min(own.responder_resources, asked.responder_resources);
  if (!ask(socket_.fd(), RDMA_USER_CM_CMD_ACCEPT, command)) {
    tell_end(entry, error_of("accepting an iWARP connection", errno));
  }
}

void ConnectionManager::tell_end(const Entry& entry, const absl::Status& why) {
  if (entry.end != nullptr) entry.end->on_disconnected(why);
}

void ConnectionManager::go_on(const Entry& entry, const rdma_ucm_event_resp& event) const {
  if (entry.end == nullptr) return;
  const int error = std::abs(static_cast<int>(event.status));
  switch (static_cast<Event>(event.event)) {
    case Event::kAddressResolved:
      if (absl::Status status = find_route(entry); !status.ok()) tell_end(entry, status);
      return;
    case Event::kRouteResolved:
      return entry.end->on_route(request(entry));
    case Event::kEstablished:
      return entry.end->on_connected();
    case Event::kDisconnected:
      return tell_end(entry, absl::UnavailableError("the peer closed the connection"));
    case Event::kRejected:
      return tell_end(entry,
                      absl::UnavailableError("the peer's device refused the iWARP connection"));
    case Event::kDeviceGone:
      return tell_end(entry,
                      absl::AbortedError(absl::StrCat("the device ", device_.name, " is gone")));
    case Event::kAddressError:
    case Event::kRouteError:
      return tell_end(entry, error_of("finding the way to the peer's device", error));
    default:
      return tell_end(entry, error_of("making an iWARP connection", error));
  }
}

absl::Status ConnectionManager::find_route(const Entry& entry) const {
  const rdma_ucm_resolve_route command{.id = entry.id, .timeout_ms = kResolveTimeout};
  if (ask(socket_.fd(), RDMA_USER_CM_CMD_RESOLVE_ROUTE, command)) return absl::OkStatus();
  return error_of("finding the way to the peer's device", errno);
}

std::function<absl::Status()> ConnectionManager::request(const Entry& entry) const {
  rdma_ucm_connect command{};
  command.id = entry.id;
  command.conn_param = parameters(entry.pair);
  const uint64_t token = swap_if_big_endian(entry.peers_token);
  std::memcpy(command.conn_param.private_data, &token, sizeof token);
  command.conn_param.private_data_len = sizeof token;
  return [this, command] {
    if (ask(socket_.fd(), RDMA_USER_CM_CMD_CONNECT, command)) return absl::OkStatus();
    return error_of("making an iWARP connection", errno);
  };
}

}  // namespace nezha::rdma
