// SPDX-License-Identifier: Apache-2.0
// The switch's control port: managers that have the secret install sessions there, keep them with
// leases, and remove them. A session is removed when its lease runs out, so that sessions of a dead
// manager do not fill the switch; until then hosts go on without a manager.
#pragma once

#include <poll.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/clock.h"
#include "flare_offload/secure/refusal_limit.h"
#include "flare_offload/secure/secure_stream.h"
#include "flare_offload/switchd/server.h"
#include "flare_offload/wire/messages.h"

namespace nezha::flare {

// The class is not thread-safe. Its methods never block.
class Control {
 public:
  // The server outlives this.
  static absl::StatusOr<std::unique_ptr<Control>> listen(const Address& address,
                                                         const Secret& secret, Server* server);

  // Adds the descriptors to wait for; handle() serves them.
  void add_to(std::vector<pollfd>& awaited) const;
  void handle();
  // Returns the latest time for the next handle(), whatever comes.
  Nanos next_due() const;

 private:
  struct Manager {
    std::unique_ptr<SecureStream> stream;
    std::string host;  // its address
    Nanos heard = 0;   // the time when a message came last; at first, when it was accepted
    bool is_greeted = false;
  };
  static constexpr size_t kMaxManagers = 16;
  // A connection whose peer has not shown by then that it has the secret is closed. At most
  // kMaxUnproven connections may be in that state.
  static constexpr Nanos kProofTime = 5 * kSecond;
  static constexpr size_t kMaxUnproven = 64;
  // The pause in accepting connections when the process has no descriptors left.
  static constexpr Nanos kPause = 200 * kMillisecond;

  Control(net::Socket listener, const Secret& secret, Server* server)
      : listener_(std::move(listener)), secret_(secret), server_(server) {}

  void accept_some();
  size_t greeted() const;  // returns how many
  // Drops a connection that has not shown the secret. Returns false if there is none.
  bool drop_unproven();
  void drop_silent_managers();
  void greet(Manager& manager);  // sends what the switch has
  bool serve(Manager& manager);  // returns false if it is to be dropped
  void tell_of_refusal(const Manager& manager, const absl::Status& why);
  void on_message(SecureStream& to, const std::string& text);
  void install(SecureStream& to, const message::Install& install);
  void remove(uint32_t session);
  void expire();

  net::Socket listener_;
  Secret secret_;
  Server* const server_;
  RefusalLimit refusals_;
  Nanos resumes_ = 0;                 // the time when accepting resumes
  std::vector<Manager> managers_;     // managers in the order in which they came
  std::map<uint32_t, Nanos> leases_;  // the time when each session's lease ends
};

}  // namespace nezha::flare
