// SPDX-License-Identifier: Apache-2.0
// The engine that has a switch add up, and how the ranks of a context agree on its session.
//
// Rank 0 leads. It has all ranks ask the manager for a session. The engine is up from when all
// ranks have the session until a rank loses it; after a while rank 0 tries again. While the engine
// is up, rank 0 decides which of the session's streams carries which operation (stream_order.h).
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "collectives/engine.h"
#include "common/log.h"
#include "common/unique_id.h"
#include "flare_offload/engine/flare_task.h"
#include "flare_offload/engine/manager_client.h"
#include "flare_offload/engine/rank_message.h"
#include "flare_offload/engine/stream_order.h"
#include "flare_offload/engine/switch_session.h"
#include "flare_offload/secure/refusal_limit.h"
#include "transport/message_stream.h"

namespace nezha::flare {

// The options of a rail flare:INTERFACE@MANAGER.
struct FlareOptions {
  std::string interface;
  Address manager;
  std::string rail = {};     // name of the interface's links' rail; empty: the interface's name
  std::string address = {};  // the interface's address to receive at; empty: the best one
  PortRange ports = {};      // the ports to receive at
  uint32_t window = 512;     // blocks; 512 of 1440 bytes take 6 ms at 1 Gbit/s
  int streams = 4;
  bool reproducible = false;  // sums' bits do not depend on the order of arrival
  uint32_t stagger = 1;       // blocks in a group: core/window.h
};

// The engine's user: the context.
class FlareEngineOwner {
 public:
  // The engine carries operations from on_engine_up() until on_engine_down().
  virtual void on_engine_up() = 0;
  virtual void on_engine_down() = 0;
  // A rank has broken the protocol: the context cannot go on.
  virtual void on_failed(const absl::Status& why) = 0;
  // Returns whether this rank has started the operation, which may be over.
  virtual bool has_started(const OperationId& operation) const = 0;
  // Returns whether the context still recovers from the loss of the previous session.
  virtual bool is_recovering() const = 0;

 protected:
  ~FlareEngineOwner() = default;
};

// All methods but open() are called under Progress's lock.
class FlareEngine final : public Engine, FlareTaskOwner {
 public:
  // Finds the interface's address and opens a port there. The group and the owner outlive the
  // engine. An error names what is missing.
  static absl::StatusOr<std::unique_ptr<FlareEngine>> open(Progress& progress,
                                                           const FlareOptions& options,
                                                           const Group& group, const UniqueId& job,
                                                           RankLog log, FlareEngineOwner& owner);
  ~FlareEngine() override;

  // Rank 0 connects to each other rank, the others to rank 0. Once rank 0 has all, it begins.
  void connect(int rank, Channel& channel);

  bool is_up() const { return is_up_; }
  const SessionCounters& counters() const { return counters_; }
  uint64_t failures() const { return failures_; }

  // Engine
  std::vector<int> peers(const Group&, const Operation&, const EnginePlan&) const override {
    return {};
  }
  absl::StatusOr<std::unique_ptr<Task>> start(const Group& group, const Slice& slice,
                                              const EnginePlan& plan, TaskOwner& owner) override;
  std::vector<Retained> take_retained() override;
  absl::Status supports(const Operation& operation) const override {
    return FlareTask::supports(operation);
  }

 private:
  // The way from and to the switches.
  struct Way {
    UdpPort port;
    Address address;  // the port's
  };

  static constexpr Nanos kLeastBackoff = kSecond;
  static constexpr Nanos kMostBackoff = 30 * kSecond;
  // The time that rank 0 waits for all ranks to say how an attempt ended, before it tries again.
  static constexpr Nanos kAnswerTime = 60 * kSecond;
  // The time that an operation waits for its order before this rank tells rank 0 that it has
  // started.
  static constexpr Nanos kTellAfter = 5 * kMillisecond;
  // A switch's kPending may be older than the end of a rank that it names; it counts only if the
  // rank has been gone for longer than this.
  static constexpr Nanos kStale = 200 * kMillisecond;

  FlareEngine(Progress& progress, const FlareOptions& options, const Group& group,
              const UniqueId& job, RankLog log, FlareEngineOwner& owner, Way way,
              const Secret& secret);

  // The session
  static absl::StatusOr<Way> open_way(const FlareOptions& options, const Address& address);
  static absl::StatusOr<Address> address_of(const FlareOptions& options);
  absl::Status renew_way();
  void ask(uint32_t attempt);
  void on_granted(const message::Granted& granted);
  void tell_of_refusal(const absl::Status& why);
  void on_rejected(uint32_t attempt, const std::string& why);
  void on_over(const absl::Status& why);  // called by the session
  void lose(const absl::Status& why);
  void set_down();
  void drop_session();
  void try_again();
  void on_joined(int rank, const rank_message::Joined& joined);
  void on_up(uint32_t attempt);

  // The ranks
  void send(int rank, const rank_message::Message& message);  // `rank` may be this one
  void broadcast(const rank_message::Message& message);
  void on_bytes(int from, const std::string& bytes);
  absl::Status on_message(int from, const rank_message::Message& message);
  void on_peer_gone(int rank, const absl::Status& why);

  // Operations
  void assign(FlareTask& task, int stream);
  void keep(const rank_message::Keep& keep);
  void order(const StreamLeader::Choice& choice);
  void order_waiting();
  void on_order(const rank_message::Order& order);
  bool is_current(uint32_t attempt, uint32_t stream) const;
  void on_started(int rank, const rank_message::Started& started);
  void tell_of_waiting();
  void tell(FlareTask& task);
  void on_detached(FlareTask& task) override;
  void on_task_done(FlareTask& task) override;
  void on_task_pending(FlareTask& task, const std::vector<RankRange>& missing) override;
  std::string why_waiting() const override;
  void forget(FlareTask& task);
  void set_awaited(bool is_awaited);

  Progress& progress_;
  const FlareOptions options_;
  const Group& group_;
  const UniqueId job_;
  const RankLog log_;
  FlareEngineOwner& owner_;
  Way way_;
  ManagerClient client_;
  SessionCounters counters_;
  uint64_t failures_ = 0;
  RefusalLimit refusals_;
  bool has_multicast_ = true;  // as far as known, it reaches this rank

  uint32_t attempt_ = 0;  // the latest
  uint32_t lost_ = 0;     // the latest whose session this rank lost or failed to get
  std::unique_ptr<SwitchSession> session_;  // null: there is none
  std::unique_ptr<SwitchSession> last_;     // the one before, which may still be on the stack
  bool is_up_ = false;                      // all ranks have the session
  std::map<int, std::unique_ptr<MessageStream>> peers_;
  std::map<int, std::pair<Nanos, absl::Status>> gone_;  // the time since when, and the reason

  std::map<OperationId, FlareTask*> waiting_;  // operations without a stream
  std::set<FlareTask*> running_;               // operations with a stream
  StreamFollower streams_;
  Alarm tell_;

  // Rank 0
  StreamLeader leader_;
  std::set<int> joined_;
  std::string why_not_;  // the first reason that a rank gave in this attempt
  Nanos backoff_ = kLeastBackoff;
  Alarm again_;
};

}  // namespace nezha::flare
