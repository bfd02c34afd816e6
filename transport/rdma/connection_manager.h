// SPDX-License-Identifier: Apache-2.0
// The kernel's connection manager (rdma_cm), which alone brings the queue pairs of iWARP devices
// together. It is asked by its system interface: librdmacm would keep the device open beside the
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

// One end of a connection. It is told under Progress's lock, and does not destroy the connection
// manager then.
class ConnectionEnd {
 public:
  // The way to the peer's device is found. `connect` makes the connection. It may block, and is to
  // be called without the lock, by one thread, before the end is removed: soft-iWARP waits for the
  // peer's host to accept a TCP connection.
  virtual void on_route(const std::function<absl::Status()>& /*connect*/) {}
  // There is a connection. The end that made it may send from now on; the other one not before the
  // first message has come (RFC 5044, 7.1.2).
  virtual void on_connected() {}
  // There is no connection, or not any more.
  virtual void on_disconnected(const absl::Status& why) = 0;

 protected:
  ~ConnectionEnd() = default;
};

// The connections of one device: it listens for those of peers, and makes others. All of it under
// Progress's lock.
class ConnectionManager final : EventHandler {
 public:
  struct Device {
    std::string name;
    int index = 0;         // the kernel's number
    net::Address address;  // of its network interface
  };
  struct Pair {
    uint32_t number = 0;
    uint8_t reads_asked = 0;  // most RDMA READs under way, as one that asks and as one that answers
    uint8_t reads_answered = 0;
  };

  static absl::StatusOr<std::unique_ptr<ConnectionManager>> open(Progress& progress,
                                                                 const Device& device,
                                                                 const PortRange& ports);
  ~ConnectionManager() override;  // once every end is forgotten
  ConnectionManager(const ConnectionManager&) = delete;
  ConnectionManager& operator=(const ConnectionManager&) = delete;

  // Where it listens.
  uint16_t port() const { return port_; }

  // From now on a peer may connect to `pair` that knows the number which this returns, and which
  // nobody guesses. It is 0 never.
  uint64_t add(const Pair& pair);
  // What is told of that connection; null: nothing is. At first that is so.
  void set_end(uint64_t end, ConnectionEnd* told);
  // Makes a connection of that end instead, to the one that listens at `to` and expects `token`. It
  // is told of the route.
  absl::Status connect(uint64_t end, const net::Address& to, uint64_t token);
  // Ends its connection. Its queue pair has been destroyed.
  void remove(uint64_t end) noexcept;

 private:
  static constexpr uint32_t kNone = UINT32_MAX;
  struct Entry {
    Pair pair;
    ConnectionEnd* end = nullptr;
    uint32_t id = kNone;       // the kernel's, of the connection
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
  net::Socket socket_;  // of the kernel's connection manager
  uint32_t listener_ = kNone;
  uint16_t port_ = 0;
  std::random_device random_;
  std::unordered_map<uint64_t, Entry> entries_;  // by what a peer has to know
};

}  // namespace nezha::rdma
