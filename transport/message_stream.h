// SPDX-License-Identifier: Apache-2.0
// Small messages of any length between two ranks of a context, in order: what ranks tell each other
// beside operations.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <string>

#include "transport/channel.h"

namespace nezha {

// Each message is two of the channel's: its length, which the receiver cannot know, and itself.
// Both ranks have a stream of the same context and tag. All under Progress's lock.
class MessageStream final : Receiver {
 public:
  static constexpr uint64_t kMaxBytes = 1 << 20;  // of a message

  struct Callbacks {
    // It came from the peer, and is whatever that sent.
    std::function<void(const std::string& message)> on_message;
    // Nothing comes or is sent any more. May be called several times.
    std::function<void(const absl::Status& why)> on_failed;
  };

  // `channel` stays. The callbacks may do anything but destroy the stream.
  MessageStream(Channel& channel, uint64_t context, uint64_t tag, Callbacks callbacks);
  ~MessageStream();
  MessageStream(const MessageStream&) = delete;
  MessageStream& operator=(const MessageStream&) = delete;

  // Begins to receive; what has come already comes before this returns.
  void start() { receive(kHeaderBytes); }
  // Not empty, at most kMaxBytes.
  void send(const std::string& message);
  // Whether somebody waits for the peer's next message, so that its death is looked for. At first
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
  std::list<Outgoing> outgoing_;  // that the channel reads
  std::string incoming_;
  uint64_t received_ = 0;    // bytes of incoming_
  bool is_header_ = false;   // incoming_ is one
  bool is_posting_ = false;  // what is there lands
  Inbox::Ticket* ticket_ = nullptr;
  bool is_awaited_ = false;
  bool has_failed_ = false;
};

}  // namespace nezha
