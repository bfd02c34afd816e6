// SPDX-License-Identifier: Apache-2.0
// One message from or to a buffer of Gloo's. All methods are called under Progress's lock.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "common/clock.h"
#include "transport/channel.h"
#include "transport/message.h"

namespace nezha::interop {

class Completions;
class Peer;

class Transfer {
 public:
  explicit Transfer(Completions& owner, uint64_t tag) : owner_(owner), tag_(tag) {}
  virtual ~Transfer() = default;
  Transfer(const Transfer&) = delete;
  Transfer& operator=(const Transfer&) = delete;

  Completions& owner() const { return owner_; }
  uint64_t tag() const { return tag_; }
  // Returns whether all bytes have been moved. The transfer ends once those before it in its order
  // are complete, too.
  bool is_complete() const { return is_complete_; }
  void set_complete() { is_complete_ = true; }
  // Returns the bytes that are still to be moved. A receive returns all that it has room for until
  // a message comes.
  size_t left() const { return left_; }

  // Stops the transfer. From here on nothing touches the buffer's memory, and no Peer refers to the
  // transfer.
  virtual void withdraw() = 0;
  // Returns whether the transfer fails now that this peer has failed. If not, it goes on with other
  // peers.
  virtual bool fails_with(Peer& peer) = 0;
  // Returns text for errors: "to rank 2: ...".
  virtual std::string describe() const = 0;

 protected:
  void set_left(size_t bytes) { left_ = bytes; }
  void move(size_t bytes);

 private:
  Completions& owner_;
  const uint64_t tag_;
  bool is_complete_ = false;
  size_t left_ = 0;
};

class Sending final : public Transfer, Sender {
 public:
  Sending(Completions& owner, Peer& peer, uint64_t tag) : Transfer(owner, tag), peer_(peer) {}

  // Starts a send that ends once the receiver has asked for it. It may end before this returns.
  void start(const std::byte* data, size_t bytes);
  // Starts a send to a bound buffer, where the message goes to byte `place`. A message of up to
  // kMostCopied bytes is copied, so that the send ends before this returns.
  void start_bound(const std::byte* data, size_t bytes, uint64_t place);
  static constexpr size_t kMostCopied = size_t{128} << 20;

  void withdraw() override;
  bool fails_with(Peer& /*peer*/) override { return true; }
  std::string describe() const override;

 private:
  void send(const std::byte* data, size_t bytes, uint64_t place, const Route& route);
  void released(uint64_t /*offset*/, size_t length) override { move(length); }
  void settled() override;
  void failed(const absl::Status& why) override;

  Peer& peer_;
  OutMessage* message_ = nullptr;  // null: not opened yet, or settled, or abandoned
};

// A receive from one or several peers, of a message that is as long as the room for it, or shorter.
//
// The receive posts a ticket in the inbox of each peer, so that each peer's messages go to receives
// in the order in which the receives were begun. The first message that comes decides, and the
// receive withdraws its other tickets.
class Receiving final : public Transfer {
 public:
  // `on_match`, if there is one, is called once a message, or its beginning, has come.
  Receiving(Completions& owner, const std::vector<Peer*>& peers, uint64_t tag,
            std::function<void()> on_match = nullptr);

  // The receive may end before this returns.
  void start(std::byte* memory, size_t room);

  void withdraw() override;
  bool fails_with(Peer& peer) override;
  std::string describe() const override;

 private:
  // The receive's request for a message of one peer.
  struct Claim final : Receiver {
    Receiving* receiving = nullptr;
    Peer* peer = nullptr;
    Inbox::Ticket* ticket = nullptr;  // null also while it is being posted
    bool is_open = false;             // a message may still come, or is coming

    bool accepts(const wire::MessageInfo& theirs) override;
    std::byte* place(uint64_t offset, size_t length) override;
    void landed(uint64_t offset, size_t length, Rail rail) override;
    void failed(const absl::Status& why) override;
    void mismatched(const wire::MessageInfo& theirs) override;
    void withdraw();
  };

  // Posts the ticket. Returns whether the receive still waits for a message; if not, it may be
  // over.
  bool post(Claim& claim);
  // Returns since when the message that the claim would get has been waiting in the inbox.
  Nanos waiting_since(const Claim& claim) const;

  std::vector<Claim> claims_;
  const std::function<void()> on_match_;
  Claim* match_ = nullptr;
  std::byte* memory_ = nullptr;  // the buffer's; after a match, the place of the message
  size_t room_ = 0;              // bytes; after a match, the size of the message
};

}  // namespace nezha::interop
