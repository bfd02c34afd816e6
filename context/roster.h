// SPDX-License-Identifier: Apache-2.0
// The ranks of a context: their published records, and the channels that lead to them.
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
#include "common/unique_id.h"
#include "context/record.h"
#include "context/setup.h"

namespace nezha {

class Roster {
 public:
  // While this waits for a record it calls `given_up` under the lock, and an error ends the wait.
  // The setup must outlive the roster.
  Roster(const Setup& setup, std::function<absl::Status()> given_up)
      : setup_(setup), given_up_(std::move(given_up)) {}

  // ---- Called without the lock, since most of these read the store, which blocks.

  Record own_record() const;
  absl::StatusOr<Record> read(int rank, Nanos deadline);
  // Makes the channel to that rank.
  absl::Status resolve(int rank, Nanos deadline);
  // Checks, only the first time, whether another process has taken this process's rank. If so, this
  // also leaves a refusal in the store: ranks that have read the other process's record do not know
  // this process, and ranks that wait for a record look only into the store.
  absl::Status confirm();
  // Takes over the channels that the parent has made to the ranks of `group`. By these channels
  // those ranks hear if this context breaks, even if it has never sent them anything.
  void take_channels(const Roster& parent, const std::vector<int>& group);

  // Returns the cores that this process may use, and how many ranks share them: as many as the
  // launcher says, or else all ranks but those that are known to have other cores.
  CoreShare core_share() const;
  // Tells the endpoint how many threads the process may use for rails.
  void count_rail_threads() const;

  // ---- Under the lock

  // Makes the group, in which no channels are known yet.
  void form();
  const Group& group() const { return group_; }
  Channel* channel(int rank) const { return group_.channels[static_cast<size_t>(rank)]; }
  bool knows(int rank) const { return channel(rank) != nullptr; }
  // Returns those of `ranks` to which there is no channel yet, in order, each once.
  std::vector<int> unknown_among(std::vector<int> ranks) const;
  // Returns the ranks that are gone, cannot be reached any more, or have left.
  std::vector<int> lost() const;
  // Returns the lost ranks without those that have left, which may have left because another rank
  // was lost.
  std::vector<int> dead() const;
  // Returns whether no rail reaches a rank that somebody waits for.
  bool is_cut_off() const;

 private:
  void note_cores(int rank, const Record& record);
  absl::Status check_reach(const std::map<std::string, std::string>& addresses) const;

  const Setup& setup_;
  std::function<absl::Status()> given_up_;
  const UniqueId publication_ = UniqueId::random();
  Group group_;
  HashSet<int> elsewhere_;     // under the lock: ranks that share no cores with this one
  bool is_confirmed_ = false;  // used only by the thread that calls confirm()
};

// Returns whether and how a context with that setup has a switch's rail, as its record says it.
std::string flare_rail_of(const Setup& setup);

}  // namespace nezha
