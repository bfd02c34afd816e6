// SPDX-License-Identifier: Apache-2.0
// Small messages of any length between two ranks of a context, in order, for what ranks tell each
// other beside operations.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <string>

#include "transport/channel.h"

namespace nezha {

// Each message goes as two of the channel's: its length, which the receiver cannot know, and its
// bytes. Both ranks have a stream of the same context and tag. All calls are made under Progress's
// lock.
class MessageStream final : Receiver {
 public:
  static constexpr uint64_t kMaxBytes = 1 << 20;  // the most in a message

  struct Callbacks {
    // The message came from the peer, and may be anything.
    std::function<void(const std::string& message)> on_message;
    // Nothing is received or sent any more. May be called several times.
    std::function<void(const absl::Status& why)> on_failed;
  };

  // `channel` stays. The callbacks may do anything but destroy the stream.
  MessageStream(Channel& channel, uint64_t context, uint64_t tag, Callbacks callbacks);
  ~MessageStream();
  MessageStream(const MessageStream&) = delete;
  MessageStream& operator=(const MessageStream&) = delete;

  // Begins to receive. Messages that have come already are delivered before this returns.
  void start() { receive(kHeaderBytes); }
  // Sends a message, which is not empty and has at most kMaxBytes bytes.
  void send(const std::string& message);
  // Says whether somebody waits for the peer's next message, so that its death is noticed. At first
  // nobody does.
  void set_awaited(bool is_awaited);

 private:
  struct Outgoing final : Sender {
    MessageStream* stream = nullptr;
    std::string bytes;
    OutMessage* message = nullptr;

    void released(uint64_t /*offset*/, size_t /*length*/) override {}
    void settled() override { stream->forget(this); }
    void failed(const absl::Status& why) override;
  };
  static constexpr uint64_t kHeaderBytes = 8;

  // Receiver
  std::byte* place(uint64_t offset, size_t length) override;
  void landed(uint64_t offset, size_t length, Rail rail) override;
  void failed(const absl::Status& why) override;
  void mismatched(const wire::MessageInfo& theirs) override;

  wire::MessageInfo info(uint64_t total) const;
  Outgoing& open(std::string bytes);
  void push(const Outgoing& outgoing);
  void forget(const Outgoing* outgoing);
  void receive(uint64_t total);
  uint64_t on_complete();

  Channel& channel_;
  uint64_t context_;
  uint64_t tag_;
  Callbacks callbacks_;
  std::list<Outgoing> outgoing_;  // messages that the channel reads
  std::string incoming_;
  uint64_t received_ = 0;    // bytes of incoming_
  bool is_header_ = false;   // incoming_ is a header
  bool is_posting_ = false;  // inside of post(), where what has come already lands
  Inbox::Ticket* ticket_ = nullptr;
  bool is_awaited_ = false;
  bool has_failed_ = false;
};

}  // namespace nezha
