// SPDX-License-Identifier: Apache-2.0
// One rank of a Gloo context: its endpoint, the other ranks, and the transfers between them.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "common/fork.h"
#include "common/hash_map.h"
#include "common/log.h"
#include "context/record.h"
#include "interop/gloo/acquaintances.h"
#include "interop/gloo/address.h"
#include "interop/gloo/completions.h"
#include "interop/gloo/peer.h"
#include "nezha/context.h"
#include "transport/endpoint.h"
#include "transport/message_stream.h"

namespace nezha::interop {

// The class is thread-safe. Buffers, pairs and the context share it, since a buffer may outlive the
// others.
//
// As in nezha's own contexts, a failure concerns all ranks: when a rank dies, or an operation times
// out, the transfers of every rank fail.
class Member final : JobListener {
 public:
  // Opens the rails, which are named as in ContextOptions::rails. Throws InvalidArgument and
  // IoError.
  Member(int rank, int size, const std::vector<std::string>& rails);
  ~Member();
  Member(const Member&) = delete;
  Member& operator=(const Member&) = delete;

  const Address& address() const { return *address_; }
  // Returns whether waiters poll in long transfers, too (NEZHA_POLLING).
  bool puts_latency_first() const { return puts_latency_first_; }

  // Returns nezha's own context of the same ranks, at the same endpoints, or null once this rank
  // has left it. If the context breaks, all transfers fail, and the other way round.
  std::shared_ptr<Context> context();
  // Leaves that context: operations of other ranks that need this rank fail.
  void leave_collectives() noexcept;

  // Begins to connect, without waiting. `bytes` are the other rank's address(). Throws.
  void connect(int rank, const std::vector<char>& bytes);
  // Fails the transfers with that rank, and tells the rank.
  void close(int rank) noexcept;
  // Returns whether connect() was called for that rank, and the connection has neither failed nor
  // been closed.
  bool is_connected(int rank);

  // These begin a transfer, whose memory must stay until it is over. They throw what Gloo's own
  // device throws: IoException if the rank cannot be reached any more. `tag` is Gloo's slot.
  void send(Completions& completions, int rank, uint64_t tag, const std::byte* data, size_t bytes);
  void receive(Completions& completions, const std::vector<int>& ranks, uint64_t tag,
               std::byte* memory, size_t room);
  // Sends to a bound buffer. `place` is the message's offset in that buffer, in bytes.
  void send_bound(Completions& completions, int rank, int slot, const std::byte* data, size_t bytes,
                  uint64_t place);
  // Receives all messages to that slot into `memory`, until the completions are given back. Throws
  // if the slot has memory already.
  void bind(Completions& completions, int rank, int slot, std::byte* memory, size_t room);

  // Returns the list of a buffer's transfers. It must be given back, which withdraws the transfers.
  std::unique_ptr<Completions> completions(absl::string_view what);
  void give_back(std::unique_ptr<Completions> completions) noexcept;
  // Waits for the next transfer that is complete, and returns its rank, or nothing if the wait is
  // aborted. Throws IoException if a transfer has failed, or if none is complete by the deadline.
  // In that case all pairs are closed, as in Gloo.
  std::optional<int> wait(Completions& completions, std::chrono::milliseconds timeout);
  void abort_wait(Completions& completions);

  // Under the lock:
  Progress& progress() { return endpoint_->progress(); }
  // The transfer is over. It is destroyed later, when none of its functions can be on the stack.
  void bury(std::unique_ptr<Transfer> transfer) { buried_.push_back(std::move(transfer)); }

 private:
  class Entry;
  // A bound buffer that receives.
  struct Bound {
    Completions* completions;
    std::byte* memory;
    size_t room;              // bytes
    bool is_waiting = false;  // it waits for the beginning of a message
  };

  // JobListener
  void on_abort(const wire::Abort& abort) override;
  void on_roll_call(const wire::RollCall& /*call*/) override {}
  void on_failed(const absl::Status& why) override;

  void join(const std::vector<std::string>& rails);
  void check_process() const;
  Peer& peer(int rank);            // throws if there is none
  Peer& connected_peer(int rank);  // throws if it cannot be reached
  absl::Status learn(int rank, const Record& record, bool is_complete);
  void tell_of_missing_rails(int rank, const Record& record, size_t in_common);
  template <typename T, typename Start>
  void begin(std::unique_ptr<T> transfer, Start start);
  void on_message(int rank, const std::string& message);
  void ask_for_next(int rank, int slot);
  void fail_all(const absl::Status& why, const wire::Abort& abort);
  void tell_and_fail_all(const absl::Status& why);

  const int rank_, size_;
  const std::string rank_of_;  // "rank 1 of 4"
  const RankLog log_;
  const ForkMark mark_;
  std::shared_ptr<Endpoint> endpoint_;
  std::shared_ptr<Acquaintances> acquaintances_;
  Record record_;
  std::unique_ptr<Address> address_;
  bool puts_latency_first_ = true;

  // Under the lock:
  std::shared_ptr<Context> context_;
  std::vector<std::unique_ptr<Peer>> peers_;             // indexed by rank; null: this rank
  std::vector<std::unique_ptr<MessageStream>> streams_;  // indexed by rank; null: not connected
  HashMap<std::pair<int, int>, Bound> bound_;            // indexed by rank and slot
  std::vector<std::unique_ptr<Transfer>> buried_;
  bool has_failed_ = false;         // fail_all() was called
  bool has_told_of_rails_ = false;  // has warned that a peer has other rails
};

}  // namespace nezha::interop
