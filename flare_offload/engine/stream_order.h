// SPDX-License-Identifier: Apache-2.0
// Determines which stream of a session carries which operation, by rank 0's choices and by what
// each rank knows of them. Neither class has I/O or a clock.
//
// Ranks start operations in orders of their own, as threads do, but a stream must carry the same
// operations in the same order on all ranks. So when rank 0 starts an operation, it tells the
// others which stream carries it. A tag that is used again and again gets a stream for itself: all
// ranks start its operations in the same order, so that nobody waits for a message from rank 0.
//
// Another stream carries one operation at a time. An operation may have to wait for another rank,
// and that rank may first wait for operations that start later here. If such operations took all
// streams, the ranks would wait for each other for ever. So the last stream is kept for operations
// that all ranks have started, which wait for nobody. A rank tells rank 0 which operations it has
// started if no order for them comes
// soon.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "collectives/operation_id.h"

namespace nezha::flare {

// Rank 0's choices.
class StreamLeader {
 public:
  struct Choice {
    OperationId name;
    int stream = 0;
    bool is_kept = false;  // the stream is for all later operations of the tag, too
  };

  StreamLeader(int streams, int ranks) : streams_(streams), ranks_(ranks) {}

  // There is a session: each of its streams is free.
  void begin() { busy_.assign(static_cast<size_t>(streams_), false); }
  // The session is lost: nothing waits for its streams any more.
  void clear();

  // The operation has started at rank 0, and waits for a stream.
  void add(const OperationId& name) { queue_.push_back(name); }
  // The operation has started at another rank.
  void on_started(int rank, const OperationId& name) { started_[name].insert(rank); }
  // The operation is over, or has a stream without a choice of its own.
  void forget(const OperationId& name);
  // The operation that the stream was chosen for is over.
  void free(int stream) { busy_[static_cast<size_t>(stream)] = false; }

  // Chooses a stream, which is busy from now on, for the next operation that can go. Returns
  // nothing if no stream is free for the operations that wait.
  std::optional<Choice> next();

 private:
  // A tag with this many operations gets a stream; at most kMostCounted tags are counted at a time.
  static constexpr int kOftenUsed = 4;
  static constexpr size_t kMostCounted = 64;
  // Streams that no tag gets; the last stream is one of them.
  static constexpr int kShared = 2;

  std::deque<OperationId>::iterator first_started_everywhere();
  bool deserves_stream(uint32_t tag);

  const int streams_;
  const int ranks_;
  int kept_ = 0;                   // streams that tags have
  std::vector<bool> busy_;         // indexed by stream; a tag's stream stays busy
  std::map<uint32_t, int> uses_;   // the number of operations of each tag without a stream
  std::deque<OperationId> queue_;  // operations in the order of their starts
  std::map<OperationId, std::set<int>> started_;  // ranks
};

// A rank's knowledge of rank 0's choices.
class StreamFollower {
 public:
  void clear();
  // Records a choice for an operation that has not started here.
  void on_order(const OperationId& name, int stream) { orders_[name] = stream; }
  // Records that the tag has the stream, from the ordinal of `first` on.
  void on_keep(const OperationId& first, int stream) { kept_[first.tag] = {first.ordinal, stream}; }

  // Returns the stream of an operation that starts now, or nothing if no choice is known yet.
  std::optional<int> take(const OperationId& name);
  // Returns the stream of the operation's tag, if the tag has had one since this operation or an
  // earlier one.
  std::optional<int> kept_stream(const OperationId& name) const;
  // Returns whether the tag has the stream.
  bool is_kept_for(uint32_t tag, int stream) const;

 private:
  struct Keep {
    uint64_t ordinal = 0;
    int stream = 0;
  };
  absl::flat_hash_map<OperationId, int> orders_;
  std::map<uint32_t, Keep> kept_;  // indexed by tag
};

}  // namespace nezha::flare
