// SPDX-License-Identifier: Apache-2.0
// A link over a reliable RDMA connection. Short segments and control frames are copied into
// messages. Of a long segment the peer gets the header and the address, and its device reads the
// payload into its place.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/net/socket.h"
#include "common/recycled.h"
#include "transport/device.h"
#include "transport/link.h"
#include "transport/progress.h"
#include "transport/rdma/adapter.h"
#include "transport/rdma/connection_manager.h"
#include "transport/rdma/credits.h"
#include "transport/rdma/landings.h"
#include "transport/rdma/message.h"
#include "transport/rdma/queue_pair.h"
#include "transport/rdma/slots.h"

namespace nezha::rdma {

class RdmaLink final : public Link, Client, ConnectionEnd, EventHandler {
 public:
  // Makes an end of a connection that is ready to receive. `counters` outlives the link.
  static absl::StatusOr<std::unique_ptr<RdmaLink>> create(Progress& progress,
                                                          std::shared_ptr<Adapter> adapter,
                                                          RailCounters& counters);
  ~RdmaLink() override;

  // Returns what the peer's end must know.
  Greeting greeting() const;
  Adapter& adapter() const { return *adapter_; }
  // Connects the queue pair; see QueuePair::connect. Then the link can be started.
  absl::Status connect(const Greeting& peers);
  // Keeps `socket`, by which the two ends went through the handshake. It stays open, because it
  // tells at once when the peer's process has ended. Callers call this before the link is started.
  void adopt(net::Socket socket, bool is_accepting);
  // The link will not be started any more. What comes for it is ignored.
  void give_up() { has_failed_ = true; }
  bool has_failed() const { return has_failed_; }

  void start(LinkOwner* owner, Rail rail, uint64_t id) override;
  void submit(OutSegment& segment) override;
  void send(wire::FrameType type, absl::string_view body) override;
  void flush_ack() override;
  void answer() override;
  bool drop_incoming(size_t nth) override;
  void withdraw(OutSegment& segment) override;
  const RecycledDeque<OutSegment*>& unacked() const override { return unacked_; }
  Health health() const override;
  uint64_t undelivered() const override { return bytes_submitted_ - bytes_confirmed_; }
  bool has_arrived() const override;
  size_t largest_packet() const override { return pair_->mtu(); }
  void stop() noexcept override;
  void shut_down() override;

 private:
  struct Control {
    wire::FrameType type;
    std::string body;
  };
  // A segment that the peer has heard of.
  struct Begun {
    OutSegment* segment;
    bool is_lent;                      // the peer reads it; else it has been copied
    absl::Span<const std::byte> held;  // its memory, if this link holds it
  };
  // A message that the peer's device has not confirmed.
  struct Message {
    Nanos sent_at;
    uint32_t bytes;   // the segments' bytes
    uint32_t bodies;  // bytes of segments and of control frames
  };

  RdmaLink(Progress& progress, std::shared_ptr<Adapter> adapter, RailCounters& counters);
  absl::Status open();
  void on_events(uint32_t events) override;
  void on_completion(uint32_t id, const ibv_wc& completion) override;
  void on_disconnected(const absl::Status& why) override;
  void end(absl::Status why);
  void release_all() noexcept;

  // Receiving.
  void on_message(uint32_t slot, size_t bytes);
  absl::Status take(const std::byte* message, size_t bytes);
  absl::Status take_frame(Content content, const std::byte* message, size_t bytes);
  absl::Status take_segment(Content content, const wire::FrameHeader& frame,
                            absl::Span<const std::byte> rest);
  absl::Status take_acks(uint64_t acked);
  void on_read();
  void land();

  // Sending.
  void pump();
  bool send_one();
  void post(size_t bytes, uint32_t of_segments, uint32_t bodies);
  std::byte* begin_message(Content content);
  std::byte* put_header(std::byte* out, wire::FrameType type, uint8_t flags, size_t length);
  void send_control(const Control& control);
  void send_segment();
  void send_more();
  std::optional<Region> lend(Begun& begun);
  void release(Begun& begun) noexcept;
  void copied(OutSegment& segment);
  void on_sent();

  // A peer that makes this end keep more than this is not a correct one.
  static constexpr size_t kMostControls = 1 << 16;
  static constexpr size_t kMostLandings = 1 << 12;
  static constexpr Nanos kParting = 50 * kMillisecond;

  Progress& progress_;
  std::shared_ptr<Adapter> adapter_;
  RailCounters& counters_;
  LinkOwner* owner_ = nullptr;
  std::unique_ptr<Slots> slots_;
  std::unique_ptr<QueuePair> pair_;  // ends before the slots do
  std::optional<Credits> credits_;
  std::optional<Landings> landings_;
  net::Socket socket_;
  bool is_accepting_ = false;
  // The number by which an iWARP device's connection manager knows this end; 0: another kind of
  // device.
  uint64_t token_ = 0;
  Alarm parting_;            // runs once the peer's process has ended
  bool is_ready_ = false;    // the peer can receive
  bool has_spoken_ = false;  // the peer has said by the socket that it is ready
  bool is_registered_ = false;
  bool has_failed_ = false;
  bool is_pumping_ = false;
  bool is_landing_ = false;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);

  // Sending.
  RecycledDeque<Control> controls_;
  RecycledDeque<OutSegment*> pending_;  // segments that the peer has not heard of
  RecycledDeque<OutSegment*> unacked_;  // all that were submitted
  RecycledDeque<Begun> begun_;          // the same, without those in pending_
  OutSegment* copying_ = nullptr;       // the segment that goes on in the next message
  uint32_t copied_ = 0;                 // bytes of it
  RecycledDeque<Message> messages_;
  uint64_t messages_sent_ = 0;
  bool ack_due_ = false;
  bool answer_due_ = false;

  // Counts since the link began.
  uint64_t segments_begun_ = 0;
  uint64_t segments_acked_ = 0;
  uint64_t segments_received_ = 0;
  uint64_t ack_sent_ = 0;         // what the peer has been told of segments_received_
  uint64_t bytes_submitted_ = 0;  // the segments' bytes
  uint64_t bytes_confirmed_ = 0;  // the segments' bytes that the peer's device has
  uint64_t bodies_moved_ = 0;     // bytes, both ways
  Nanos heard_at_ = 0;            // when the peer's device last showed that it is there
  Nanos confirmation_time_ = 0;   // the time of the message that was confirmed last
};

}  // namespace nezha::rdma
