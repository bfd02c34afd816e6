// SPDX-License-Identifier: Apache-2.0
// A secure stream that Progress drives.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "flare_offload/secure/secure_stream.h"
#include "transport/progress.h"

namespace nezha::flare {

// All methods are called under Progress's lock.
class SecureConnection final : EventHandler {
 public:
  struct Callbacks {
    // The peer has shown that it has the secret. The function may be empty.
    std::function<void()> on_ready = {};
    std::function<void(const std::string& message)> on_message;
    // The connection is over, or was never established. The function is called once. It may destroy
    // the connection; the other two may not.
    std::function<void(const absl::Status& why)> on_closed;
  };

  using Service = SecureStream::Service;

  // Makes a `service`'s end of a connection that the service accepted.
  SecureConnection(Progress& progress, net::Socket accepted, Service service, const Secret& secret,
                   Callbacks callbacks);
  // Connects `socket`, which may be bound, to a `service`. SecureStream::over explains `name`.
  SecureConnection(Progress& progress, net::Socket socket, const net::Address& to, Service service,
                   const Secret& secret, std::string name, Callbacks callbacks);
  ~SecureConnection() override;
  SecureConnection(const SecureConnection&) = delete;
  SecureConnection& operator=(const SecureConnection&) = delete;

  // Queues a message, which goes once the handshake is over. Does nothing once the connection is
  // closed.
  void send(const std::string& message);
  // Writes what can be written of the queue now. Callers call this before they destroy the
  // connection.
  void flush();

 private:
  SecureConnection(Progress& progress, Callbacks callbacks);
  void open(net::Socket socket, SecureStream::Role role, Service service, const Secret& secret,
            std::string name);
  void on_events(uint32_t epoll_events) override;
  void close(const absl::Status& why);

  // The time that the peer has to show that it has the secret.
  static constexpr Nanos kProofTime = 5 * kSecond;

  Progress& progress_;
  Callbacks callbacks_;
  std::unique_ptr<SecureStream> stream_;  // null: it is closed
  Alarm deadline_;
  absl::Status why_;  // why it is closed
  bool is_ready_ = false;
};

}  // namespace nezha::flare
