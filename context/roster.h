// SPDX-License-Identifier: Apache-2.0
// The ranks of a context: what they have published, and the channels that lead to them.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "collectives/engine.h"
#include "common/clock.h"
#include "common/cores.h"
#include "common/hash_map.h"
#include "context/record.h"
#include "context/setup.h"

namespace nezha {

class Roster {
 public:
  // `given_up` is asked under the lock while a record is awaited. Its error ends the wait. The
  // setup outlives the roster.
  Roster(const Setup& setup, std::function<absl::Status()> given_up)
      : setup_(setup), given_up_(std::move(given_up)) {}

  // ---- Not under the lock: these read the store, which blocks.

  Record own_record() const;
  absl::StatusOr<Record> read(int rank, Nanos deadline);
  // Makes the channel to that rank.
  absl::Status resolve(int rank, Nanos deadline);
  // Once: whether another process has taken this one's rank. The ranks that have read the other
  // process's record know nothing of this one, and those that wait for another rank look into the
  // store only.
  absl::Status confirm();
  // The channels that the parent has made to the ranks of `group`. By them, too, a peer hears if
  // this context breaks before it has spoken to that peer itself.
  void take_channels(const Roster& parent, const std::vector<int>& group);

  // The cores that this process may use, and how many ranks share them: by what the launcher says,
  // or else all but those that are known to have others.
  CoreShare core_share() const;
  // Tells the endpoint how many threads the process may have that drive the rails.
  void count_rail_threads() const;

  // ---- Under the lock

  // Makes the group. No rank but this one is known in it.
  void form();
  const Group& group() const { return group_; }
  Channel* channel(int rank) const { return group_.channels[static_cast<size_t>(rank)]; }
  bool knows(int rank) const { return channel(rank) != nullptr; }
  // Those of the ranks that no channel is made to yet, each once.
  std::vector<int> unknown_among(std::vector<int> ranks) const;
  // The ranks that are gone, cannot be reached any more, or have left.
  std::vector<int> lost() const;
  // Of these, the ones that have not left: those may have done so for another one's loss.
  std::vector<int> dead() const;
  // Whether a rank that is waited for is reached by no rail.
  bool is_cut_off() const;

 private:
  void note_cores(int rank, const Record& record);
  absl::Status check_reach(const std::map<std::string, std::string>& addresses) const;

  const Setup& setup_;
  std::function<absl::Status()> given_up_;
  Group group_;
  HashSet<int> elsewhere_;     // under the lock: ranks that share no cores with this one
  bool is_confirmed_ = false;  // the thread's that resolves
};

// Whether and how a context with that setup has a switch's rail, as in its record.
std::string flare_rail_of(const Setup& setup);

}  // namespace nezha
