// SPDX-License-Identifier: Apache-2.0
// The kernel's connection manager (rdma_cm), which alone can connect the queue pairs of iWARP
// devices. It is called by its system interface: librdmacm would keep the device open beside the
// adapter, and a command that takes the device away would wait until the process ends.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <unordered_map>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/net/address.h"
#include "common/net/socket.h"
#include "common/port_range.h"
#include "transport/progress.h"

struct rdma_ucm_conn_param;
struct rdma_ucm_event_resp;

namespace nezha::rdma {

// One end of a connection. It is called under Progress's lock, and must not destroy the connection
// manager then.
class ConnectionEnd {
 public:
  // The route to the peer's device is found. `connect` makes the connection. It may block, because
  // soft-iWARP waits for the peer's host to accept a TCP connection. So it is to be called without
  // the lock, by one thread, before the end is removed.
  virtual void on_route(const std::function<absl::Status()>& /*connect*/) {}
  // There is a connection. The end that made it may send from now on. The other one may not before
  // the first message has come (RFC 5044, 7.1.2).
  virtual void on_connected() {}
  // There is no connection, or not any more.
  virtual void on_disconnected(const absl::Status& why) = 0;

 protected:
  ~ConnectionEnd() = default;
};

// The connections of one device: listens for those of peers, and makes others. All calls are made
// under Progress's lock.
class ConnectionManager final : EventHandler {
 public:
  struct Device {
    std::string name;
    int index = 0;         // the kernel's number
    net::Address address;  // its network interface's
  };
  struct Pair {
    uint32_t number = 0;
    uint8_t reads_asked = 0;  // most RDMA READs under way, as the asking and as the answering side
    uint8_t reads_answered = 0;
  };

  static absl::StatusOr<std::unique_ptr<ConnectionManager>> open(Progress& progress,
                                                                 const Device& device,
                                                                 const PortRange& ports);
  ~ConnectionManager() override;  // once every end is forgotten
  ConnectionManager(const ConnectionManager&) = delete;
  ConnectionManager& operator=(const ConnectionManager&) = delete;

  // Returns the port at which it listens.
  uint16_t port() const { return port_; }

  // From now on a peer may connect to `pair` if it knows the number that this returns, which nobody
  // can guess. The number is never 0.
  uint64_t add(const Pair& pair);
  // Sets what is told of that connection; null: nothing is, as at first.
  void set_end(uint64_t end, ConnectionEnd* told);
  // Makes that end's connection instead of waiting for it: to the manager that listens at `to` and
  // expects `token`. The end is told of the route.
  absl::Status connect(uint64_t end, const net::Address& to, uint64_t token);
  // Ends the end's connection. Its queue pair has been destroyed.
  void remove(uint64_t end) noexcept;

 private:
  static constexpr uint32_t kNone = UINT32_MAX;
  struct Entry {
    Pair pair;
    ConnectionEnd* end = nullptr;
    uint32_t id = kNone;       // the kernel's number of the connection
    uint64_t peers_token = 0;  // 0: the peer connects
  };

  ConnectionManager(Progress& progress, Device device)
      : progress_(progress), device_(std::move(device)) {}
  absl::StatusOr<net::Socket> listener_at(uint16_t port);
  absl::StatusOr<uint16_t> port_of(int fd) const;
  absl::Status error_of(absl::string_view what, int error) const;
  void on_events(uint32_t) override;
  void handle(const rdma_ucm_event_resp& event);
  void on_request(const rdma_ucm_event_resp& event);
  static void tell_end(const Entry& entry, const absl::Status& why);
  void go_on(const Entry& entry, const rdma_ucm_event_resp& event) const;
  absl::Status find_route(const Entry& entry) const;
  std::function<absl::Status()> request(const Entry& entry) const;

  Progress& progress_;
  const Device device_;
  net::Socket socket_;  // the kernel's connection manager
  uint32_t listener_ = kNone;
  uint16_t port_ = 0;
  std::random_device random_;
  std::unordered_map<uint64_t, Entry> entries_;  // keyed by the number that a peer must know
};

}  // namespace nezha::rdma
