// SPDX-License-Identifier: Apache-2.0
// A host's end of the session that it got: the streams of blocks that it exchanges with its switch.
//
// A session has several streams (each of them is one to the switch), so that operations in flight
// side by side do not wait for each other. What a stream carries is the same, in the same order, on
// all ranks: flare_engine.h sees to it.
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

// Whose blocks they are: an operation's part. All calls come under Progress's lock.
class BlockOwner {
 public:
  // Of all its blocks, the seq apart.
  virtual BlockId id() const = 0;
  // What this rank has of the block, at most a payload; stays until the block is complete.
  virtual absl::Span<const std::byte> contribution(uint32_t block) = 0;
  // The block's result, once. False: it is not of the contribution's length, and is not taken.
  virtual bool take(uint32_t block, absl::Span<const std::byte> result) = 0;
  // A copy of what is final in the caller's memory of a block that was taken.
  virtual void retain(uint32_t block, Retained& copy) const = 0;
  // All blocks have results. Nothing else is called any more.
  virtual void on_complete() = 0;
  // Others have not contributed yet.
  virtual void on_pending(const std::vector<RankRange>& missing) = 0;
  // Ranks contribute to different things, of which the kMismatch tells two.
  virtual void on_mismatch(const Frame& frame) = 0;
  // Likewise, as a result shows that was not taken.
  virtual void on_misfit() = 0;

 protected:
  ~BlockOwner() = default;
};

struct SessionCounters {
  uint64_t bytes_sent = 0;  // of elements
  uint64_t bytes_received = 0;
  uint64_t resent = 0;  // blocks
};

// All under Progress's lock.
class SwitchSession final : EventHandler {
 public:
  // The port and the counters outlive this. `group`: a member of what was granted. `on_over`: the
  // switch says nothing any more, or nothing by the group, or the session's numbers are used up.
  // Called once, by a timer; this may not be destroyed in it.
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
  // What is sent to the group does not come: there is no use in another.
  bool is_deaf() const { return unheard_ >= kDeaf; }

  // The stream's next `blocks` blocks, one at least, are the owner's.
  void add(int stream, uint32_t blocks, BlockOwner* owner);
  // The owner is gone. If its blocks were not complete, the stream's later ones never will be.
  void forget(const BlockOwner* owner);
  // See Engine::take_retained: the last W blocks of each stream.
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
    std::vector<Retained> retained;  // by seq modulo W; empty bytes: nothing
    uint64_t used = 0;               // blocks
  };
  // A switch that says nothing for so long while something is in flight is given up. Resends are
  // answered, at least by kPending.
  static constexpr Nanos kSilence = kSecond;
  // So often results had to be asked for again, at least so much later each time, and nothing came
  // by the group in between: the network drops multicast, or has begun to. What is lost now and
  // then, be it much at a time, is followed by what is not.
  static constexpr int kDeaf = 8;
  static constexpr Nanos kDeafPause = 20 * kMillisecond;
  // A session's numbers may not come around: authenticator.h. Some are left for what is under way.
  static constexpr uint64_t kMaxUsed = uint64_t{1} << 30;

  void on_events(uint32_t epoll_events) override;
  size_t receive();  // how many datagrams
  size_t receive(UdpPort& port);
  void on_datagram(absl::Span<const std::byte> datagram, const Address& from, bool is_by_group);
  // Whether it was awaited.
  bool on_result(Stream& stream, uint32_t seq, absl::Span<const std::byte> result);
  void on_unheard();  // a result came by the own port: the group's had not
  static BlockRun* run_of(Stream& stream, uint32_t seq);
  void pump();
  void send(size_t stream, uint32_t seq);
  // For frames from the switch that did not come.
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
  int unheard_ = 0;  // how often, since something came by the group: kDeaf
  Nanos unheard_at_ = 0;
};

}  // namespace nezha::flare
