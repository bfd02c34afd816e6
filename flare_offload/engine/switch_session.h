// SPDX-License-Identifier: Apache-2.0
// A host's end of its session: the streams of blocks that it exchanges with its switch.
//
// A session has several streams (to the switch each of them is a session), so that concurrent
// operations do not wait for each other. flare_engine.h ensures that a stream carries the same
// operations in the same order on all ranks.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "collectives/engine.h"
#include "flare_offload/core/window.h"
#include "flare_offload/udp/udp_port.h"
#include "flare_offload/wire/frame.h"
#include "flare_offload/wire/messages.h"
#include "transport/progress.h"

namespace nezha::flare {

// The owner of blocks: a part of an operation. All calls come under Progress's lock.
class BlockOwner {
 public:
  // Returns the id that all its blocks have, except for the seq.
  virtual BlockId id() const = 0;
  // Returns this rank's contribution to the block, at most a payload. It is valid until the block
  // is complete.
  virtual absl::Span<const std::byte> contribution(uint32_t block) = 0;
  // Takes the block's result; called once. Returns false, and takes nothing, if the result has
  // another length than the contribution.
  virtual bool take(uint32_t block, absl::Span<const std::byte> result) = 0;
  // Copies a taken block's result out of the caller's memory.
  virtual void retain(uint32_t block, Retained& copy) const = 0;
  // All blocks have results. Nothing else is called any more.
  virtual void on_complete() = 0;
  // Those ranks have not contributed yet.
  virtual void on_pending(const std::vector<RankRange>& missing) = 0;
  // Ranks contribute to different operations, two of which the kMismatch names.
  virtual void on_mismatch(const Frame& frame) = 0;
  // Ranks contribute to different operations, as a result shows that take() refused.
  virtual void on_misfit() = 0;

 protected:
  ~BlockOwner() = default;
};

struct SessionCounters {
  uint64_t bytes_sent = 0;  // the elements' bytes
  uint64_t bytes_received = 0;
  uint64_t resent = 0;  // blocks
};

// All methods are called under Progress's lock.
class SwitchSession final : EventHandler {
 public:
  // The port and the counters outlive this. `group` is a member of the granted group. `on_over` is
  // called once, by a timer, when the switch has fallen silent, when nothing comes by the group, or
  // when the session's numbers are used up. It must not destroy this.
  SwitchSession(Progress& progress, UdpPort& port, std::optional<UdpPort> group,
                const message::Granted& granted, const Stagger& stagger, SessionCounters& counters,
                std::function<void(const absl::Status&)> on_over);
  ~SwitchSession() override;
  SwitchSession(const SwitchSession&) = delete;
  SwitchSession& operator=(const SwitchSession&) = delete;

  absl::Status start();
  // Nothing is sent or received any more.
  void stop();
  size_t payload() const { return granted_.payload; }
  int streams() const { return granted_.streams; }
  // Returns whether frames to the group do not arrive here, so that another group would be of no
  // use.
  bool is_deaf() const { return unheard_ >= kDeaf; }

  // Gives the stream's next `blocks` blocks, at least one, to the owner.
  void add(int stream, uint32_t blocks, BlockOwner* owner);
  // The owner is gone. If its blocks were not complete, the stream's later ones never will be.
  void forget(const BlockOwner* owner);
  // Returns what was retained of the last W blocks of each stream. See Engine::take_retained.
  std::vector<Retained> take_retained();

 private:
  struct BlockRun {
    BlockOwner* owner = nullptr;
    uint32_t first = 0;  // seq
    uint32_t count = 0;
    uint32_t missing = 0;
  };
  struct Stream {
    Window window;
    std::deque<BlockRun> runs;
    std::vector<Retained> retained;  // indexed by seq modulo W; empty bytes: nothing
    uint64_t used = 0;               // blocks
  };
  // A switch that sends nothing for so long while something is in flight is given up: it answers
  // resends at least by kPending.
  static constexpr Nanos kSilence = kSecond;
  // Multicast counts as broken when awaited results have come by the own port this many times, at
  // least kDeafPause apart, and nothing by the group in between. Occasional losses, even of many
  // frames, are followed by frames that arrive.
  static constexpr int kDeaf = 8;
  static constexpr Nanos kDeafPause = 20 * kMillisecond;
  // A session's block numbers must not wrap (authenticator.h). Some are left for what is under way.
  static constexpr uint64_t kMaxUsed = uint64_t{1} << 30;

  void on_events(uint32_t epoll_events) override;
  size_t receive();  // returns how many datagrams
  size_t receive(UdpPort& port);
  void on_datagram(absl::Span<const std::byte> datagram, const Address& from, bool is_by_group);
  // Returns whether the result was awaited.
  bool on_result(Stream& stream, uint32_t seq, absl::Span<const std::byte> result);
  void on_unheard();  // a result came by the own port, and not by the group
  static BlockRun* run_of(Stream& stream, uint32_t seq);
  void pump();
  void send(size_t stream, uint32_t seq);
  // Asks for frames from the switch that did not come.
  void ask_for(size_t stream, const NumberRange& numbers);
  FrameHeader header_of(FrameType type, size_t stream) const;
  void on_alarm();
  void end(const absl::Status& why);

  Progress& progress_;
  UdpPort& port_;
  std::optional<UdpPort> group_;
  const message::Granted granted_;
  SessionCounters& counters_;
  std::function<void(const absl::Status&)> on_over_;
  Authenticator authenticator_;
  std::vector<Stream> streams_;
  Alarm alarm_;
  Nanos alarm_at_ = 0;
  bool is_running_ = false;
  int unheard_ = 0;  // the number of times since something came by the group; see kDeaf
  Nanos unheard_at_ = 0;
};

}  // namespace nezha::flare
