// SPDX-License-Identifier: Apache-2.0
// A link over one stream of bytes. It frames what it sends (transport/wire.h), and counts what was
// acknowledged.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "common/recycled.h"
#include "transport/byte_stream.h"
#include "transport/device.h"
#include "transport/link.h"
#include "transport/progress.h"

namespace nezha {

class FramedLink final : public Link, EventHandler {
 public:
  // `counters` outlives the link. `thread`: the rail's thread; null if it has none.
  FramedLink(Progress& progress, Progress::RailThread* thread, std::unique_ptr<ByteStream> stream,
             RailCounters& counters);
  ~FramedLink() override;

  void start(LinkOwner* owner, Rail rail, uint64_t id) override;
  void submit(OutSegment& segment) override;
  void withdraw(OutSegment& /*segment*/) override { await(sending_); }
  void send(wire::FrameType type, absl::string_view body) override;
  void flush_ack() override;
  void answer() override;
  bool drop_incoming(size_t nth) override;
  bool halt() override;
  const RecycledDeque<OutSegment*>& unacked() const override { return unacked_; }
  uint64_t undelivered() const override;
  Health health() const override;
  bool has_arrived() const override { return frames_.empty() && stream_->queued() == 0; }
  size_t largest_packet() const override { return stream_->largest_packet(); }
  void send_burst(int frames) override;
  bool has_burst_arrived() const override { return delivered() >= burst_end_; }
  void stop() noexcept override;
  void shut_down() override;

 private:
  static constexpr size_t kMaxHead = wire::kFrameHeaderSize + wire::kDataHeaderSize;

  // A frame that is being written.
  struct OutFrame {
    std::array<std::byte, kMaxHead> head;
    size_t head_size = 0;
    std::string control;            // a control frame's body
    OutSegment* segment = nullptr;  // or a segment
    bool ends_burst = false;
    size_t done = 0;  // bytes written, of head and body
    const std::byte* body() const {
      return segment != nullptr ? segment->data
                                : reinterpret_cast<const std::byte*>(control.data());
    }
    size_t body_size() const { return segment != nullptr ? segment->length : control.size(); }
    size_t size() const { return head_size + body_size(); }
  };

  // Returns the bytes that the peer's machine has. What the rail's thread has sent this moment may
  // be queued and not yet counted as written.
  uint64_t delivered() const {
    return bytes_written_ - std::min(bytes_written_, stream_->queued());
  }

  void on_events(uint32_t events) override;
  bool look() override;
  void on_turn() override;
  bool handle_input();  // false: the link is gone
  // Reading. Each returns whether to go on.
  void read();
  bool read_once();
  size_t staging_room() const;
  bool receive(absl::Span<const iovec> parts, ssize_t& got, int& error);
  bool parse();
  bool parse_frame();
  bool begin_segment(const wire::FrameHeader& frame, const std::byte* header);
  void take_payload(size_t bytes);
  bool end_of_payload();
  absl::Status take_acks(uint64_t acked);
  // Writing.
  bool may_write() const { return !writing_ && !watching_ && write_error_.ok() && !failed_; }
  bool is_left_to_thread() const;
  void call_thread_for(const wire::DataHeader& segment, size_t length);
  void write();
  bool write_once();
  bool send(absl::Span<const iovec> parts, ssize_t& sent, int& error);
  void refill();
  OutFrame& append_frame(wire::FrameType type, uint8_t flags, size_t length,
                         std::string control = {});
  void written(size_t bytes);
  void watch_for_room(bool on);
  bool fail(absl::Status why);  // always false
  // Runs `call` without the lock, and sets `flag` meanwhile. Returns false if the link failed by
  // then, or is gone.
  template <typename Call>
  bool without_lock(std::atomic<bool>& flag, Call call);
  static void await(const std::atomic<bool>& flag);
  void fence() const;

  static constexpr size_t kStaging = 4 << 10;     // bytes read ahead of what has a place
  static constexpr size_t kBin = 64 << 10;        // bytes
  static constexpr size_t kReadBudget = 1 << 20;  // bytes a turn, so that others get their turns
  static constexpr size_t kFramesAtOnce = 8;      // the most in one system call
  static constexpr size_t kLongCopy = 16 << 10;   // bytes that are worth giving up the lock for
  // Bytes of a message for which it pays to wake the rail's thread.
  static constexpr uint64_t kWorthThread = 256 << 10;

  Progress& progress_;
  Progress::RailThread* thread_;
  std::unique_ptr<ByteStream> stream_;
  RailCounters& counters_;
  LinkOwner* owner_ = nullptr;
  bool failed_ = false;
  bool ended_ = false;  // shut down in good order
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);

  // Reading: a frame's head is gathered in the staging area; payload goes where it belongs.
  std::array<std::byte, kStaging> staging_;
  size_t staged_begin_ = 0, staged_end_ = 0;
  bool in_payload_ = false;
  size_t payload_left_ = 0;
  std::byte* destination_ = nullptr;  // null: the payload is dropped
  std::unique_ptr<std::byte[]> bin_;
  size_t segment_length_ = 0;  // bytes
  Digest digest_;
  bool is_digested_ = false;            // the segment is complete, and its digest done
  uint64_t received_ = 0;               // segments
  size_t read_this_turn_ = 0;           // bytes
  bool on_thread_ = false;              // inside of handle_input, on the rail's thread
  std::atomic<bool> receiving_{false};  // reads without the lock
  uint64_t bytes_read_ = 0;
  uint64_t bodies_read_ = 0;  // bytes of payload and of control frames' bodies

  // Writing.
  RecycledDeque<OutFrame> frames_;      // begun, or about to be
  RecycledDeque<OutSegment*> pending_;  // not in frames_ yet
  RecycledDeque<OutSegment*> unacked_;  // all that were submitted
  int burst_left_ = 0;                  // frames, behind all others
  uint64_t written_ = 0;                // segments
  uint64_t bytes_written_ = 0;
  uint64_t bodies_written_ = 0;  // bytes of the same sort
  uint64_t burst_end_ = 0;  // value of bytes_written_; the maximum until the last frame is written
  uint64_t acked_ = 0;      // segments
  uint64_t ack_sent_ = 0;   // what the peer has been told of received_
  bool answer_due_ = false;
  uint64_t waiting_ = 0;              // bytes of segments that were submitted and are not written
  bool writing_ = false;              // inside of write() or on_turn()
  bool in_turn_ = false;              // inside of on_turn()
  std::atomic<bool> sending_{false};  // writes without the lock
  bool watching_ = false;             // waits for room in the socket
  absl::Status write_error_;  // the link fails with this once what the peer had sent is read
};

}  // namespace nezha
