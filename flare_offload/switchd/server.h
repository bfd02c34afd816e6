// SPDX-License-Identifier: Apache-2.0
// The switch: its workers, the sessions installed on them, and what is counted.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "flare_offload/switchd/worker.h"

namespace nezha::flare {

// A server is used by one thread, which is none of the workers'. It blocks only while a worker
// waits for a core.
class Server {
 public:
  // `memory` is the bytes that all sessions' slots may take together. `threads` is from 1 to
  // kMaxThreads. Where the kernel cannot distribute frames among several threads there is one, and
  // the log says so.
  static absl::StatusOr<std::unique_ptr<Server>> listen(const Address& address, size_t memory,
                                                        int threads);
  static constexpr int kMaxThreads = 64;

  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  // Returns kAlreadyExists if there is such a session, kResourceExhausted if the memory that is
  // left is not enough, and Session::install's errors. All errors name the session.
  absl::Status install(const SessionSpec& spec);
  // Does nothing if there is no such session.
  void remove(uint32_t session);
  size_t memory() const { return memory_; }  // the memory that listen() was given
  absl::StatusOr<Address> address() const;   // the address where it listens

  // Becomes readable when a thread has ended early; failure() says why.
  int failure_fd() const { return failed_.fd(); }
  absl::Status failure();

  // Returns a line of JSON, which kStatisticsFormat explains.
  std::string statistics();

 private:
  explicit Server(size_t memory);

  Worker& worker_of(uint32_t session);

  const size_t memory_;
  size_t memory_left_;
  std::map<uint32_t, size_t> sessions_;  // the bytes that each takes
  net::Socket failed_;                   // an eventfd
  std::vector<std::unique_ptr<Worker>> workers_;
};

// Explains statistics() to users.
constexpr absl::string_view kStatisticsFormat =
    R"(Statistics, since the start and of each session since it was installed:

  threads                        how many there are
  received, received_bytes       all frames that came, and their bytes with headers
  sent, sent_bytes               frames that went out
  not_sent                       dropped: the kernel had no room for them, or no route
  batches                        how often 1, 2 to 3, 4 to 7, ..., 128 and more frames came at once
  handed_over, not_handed_over   frames of one thread that came to another, in a train that had
                                 several sessions' frames; those dropped, as too many of them waited
  malformed, unknown             dropped: no frame; of no session here
  memory_left                    bytes for further sessions' slots
  sessions                       for each:
    session, thread              its number; which thread has it
    received, received_bytes, sent, sent_bytes
    blocks, combined             blocks finished; contributions that went into some block
    duplicates, resent           contributions that were there already; results, and sums for the
                                 switch above, that were sent again
    pendings                     answers that a block waits for other ranks
    lost                         frames that were missed, and asked for
    stale                        dropped: of blocks that nobody needs any more
    mismatches                   blocks to which ranks contributed different operations
    violations                   dropped: what no host sends, as a block out of its window
    outdated, strangers, forged  dropped: of another generation; from none of the session's
                                 addresses; not authentic
)";

}  // namespace nezha::flare
