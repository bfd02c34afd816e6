// SPDX-License-Identifier: Apache-2.0
// One end of an RDMA connection in the making. It connects the queue pair, on a thread of its own
// where that may block, and agrees with the other end that both are ready. Then the link is up.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/clock.h"
#include "common/net/socket.h"
#include "transport/handshake.h"
#include "transport/progress.h"
#include "transport/rdma/connection_manager.h"
#include "transport/rdma/greeting.h"
#include "transport/rdma/link.h"

namespace nezha::rdma {

// All calls are made under Progress's lock. The end may be given up while the thread is at work.
// The thread then keeps the link, whose queue pair cannot be destroyed meanwhile, and destroys it
// afterwards.
class RdmaEnd final : public LinkEnd, ConnectionEnd, EventHandler {
 public:
  RdmaEnd(Progress& progress, std::unique_ptr<RdmaLink> link);
  ~RdmaEnd() override;

  std::string greeting() override { return encode(own_); }
  absl::Status check(absl::string_view peers_greeting) const override;
  void make(net::Socket socket, absl::string_view peers_greeting, bool is_accepting,
            Made made) override;

 private:
  // What the thread shares with this object.
  struct Work {
    RdmaEnd* end;  // null: it is over, or was given up
    std::unique_ptr<RdmaLink> link;
    absl::Status outcome = {};
  };

  absl::Status begin(const Greeting& peers);
  absl::Status connect_aside(std::function<absl::Status()> connect);
  void on_outcome(const absl::Status& outcome);
  void on_route(const std::function<absl::Status()>& connect) override;
  void on_connected() override;
  void on_disconnected(const absl::Status& why) override;
  void soon(std::function<void(RdmaEnd&)> call);
  void on_events(uint32_t events) override;
  void go_on();
  void end(absl::StatusOr<std::unique_ptr<Link>> link);
  void unregister();
  void let_go();

  // The same time as the handshake before it may take. The accepting end waits longer, so that the
  // other end is the one to say that the time is over.
  static constexpr Nanos kConnecting = 5 * kSecond;
  static constexpr Nanos kAccepting = 6 * kSecond;

  Progress& progress_;
  const Greeting own_;
  std::shared_ptr<Work> work_;  // null: it is over
  net::Socket socket_;
  Made made_;
  Alarm timeout_;
  bool is_accepting_ = false;
  bool is_registered_ = false;
  bool is_at_work_ = false;    // the thread is
  bool is_connected_ = false;  // the queue pair is
  bool has_told_ = false;      // this end has said that it is ready
  bool has_heard_ = false;     // the peer has said that it is ready
};

}  // namespace nezha::rdma
