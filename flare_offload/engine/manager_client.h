// SPDX-License-Identifier: Apache-2.0
// A host's connection to the manager: asks for sessions, renews their leases, and gives them back.
// It reconnects for as long as a session is wanted.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "flare_offload/secure/secure_connection.h"
#include "flare_offload/wire/messages.h"
#include "transport/progress.h"

namespace nezha::flare {

// All methods are called under Progress's lock.
class ManagerClient {
 public:
  struct Callbacks {
    std::function<void(const message::Granted&)> on_granted;
    // on_rejected is called if the attempt gets no session, and on_lost if its session has ended.
    // `why` also says what to do. It is kUnauthenticated if the manager has another secret.
    std::function<void(uint32_t attempt, const absl::Status& why)> on_rejected;
    std::function<void(uint32_t attempt, const std::string& why)> on_lost;
  };

  ManagerClient(Progress& progress, std::string interface, const Address& manager,
                const Secret& secret, Callbacks callbacks);
  // Gives back the session, if that can be sent without blocking.
  ~ManagerClient();
  ManagerClient(const ManagerClient&) = delete;
  ManagerClient& operator=(const ManagerClient&) = delete;

  // Sets the address from which later connections come, through the interface and from any port.
  // Callers call this before the first join().
  void set_local(const Address& local);
  // Gives back the session that it has and asks for another. An answer comes within kPatience.
  void join(const message::Join& join);
  void leave();

 private:
  static constexpr Nanos kPatience = 40 * kSecond;  // longer than the manager's for late ranks
  static constexpr Nanos kUnreachable = 10 * kSecond;
  static constexpr Nanos kReconnect = 300 * kMillisecond;

  std::string name() const;
  void connect();
  void on_ready();
  void on_message(const std::string& text);
  void on_closed(const absl::Status& why);
  void renew();
  void give_up();
  void give_up(const absl::Status& why);
  void on_refused(const absl::Status& why);

  Progress& progress_;
  const std::string interface_;
  Address local_;  // port 0
  const Address manager_;
  const Secret secret_;
  const Callbacks callbacks_;
  std::unique_ptr<SecureConnection> connection_;
  bool is_ready_ = false;
  std::string last_error_ = "no answer";
  std::optional<message::Join> join_;        // what is wanted
  std::optional<message::Granted> granted_;  // what the manager has granted
  Alarm again_;
  Alarm renew_;
  Alarm patience_;
};

}  // namespace nezha::flare
