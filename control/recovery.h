// SPDX-License-Identifier: Apache-2.0
// How the ranks of a context go on without an engine that is lost, such as a switch. This part does
// no I/O. tests/model/engine_recovery.pml models this protocol.
//
// A rank whose tasks on the engine cannot go on tells the coordinator, rank 0. The coordinator
// handles one loss at a time; each is an epoch. It tells all ranks to freeze. Each rank then fences
// its tasks on the engine and starts no more there. It reports every operation that has a part on
// the engine: which of the output is final, and which is missing. For operations that it has
// returned from, it reports what the engine has retained (Engine::take_retained). Until the
// coordinator answers, none of the reported operations returns, and parts of other operations that
// would run on the engine wait. When all ranks have reported, the answer names the repairs:
//
// - If no rank has anything final of an operation, the hosts engine carries the whole slice again,
//   from the inputs, which are intact. A rank that has not started the operation does the same when
//   it enters it. That may be any time later, so the repair need not wait for this rank.
// - Otherwise every rank has started the operation, since a sum contains each rank's input. If a
//   rank has a piece that another rank lacks, it broadcasts the piece, so that all ranks have the
//   same bits. If no rank has the piece, the ranks reduce it again. A rank that has returned takes
//   part with memory of its own.
//
// The engine retains every result that another rank may still lack. A rank may therefore return at
// once, and operations on an engine that works pay nothing for the protocol.
//
// An engine that works again comes back by a change of plan like any other (plan_agreement.h). Each
// plan says which lanes' engines it uses, and a loss removes the lane for good from all plans made
// so far.
//
// Repairs need all inputs. Those of a rank that dies are gone, so if a rank is lost there is no
// recovery, and the context fails.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "collectives/chunk_map.h"
#include "control/plan_agreement.h"

namespace nezha {

// What a rank reports of one operation's part on the lost engine.
struct FrozenPart {
  OperationId operation;
  ChunkMap final;    // ranges that the rank can give to others
  ChunkMap missing;  // ranges that the rank lacks
};

// How one operation's part is completed.
struct Repair {
  static constexpr int kNobody = -1;
  struct Piece {
    Range range;
    int source = kNobody;  // a rank that has the range
  };
  OperationId operation;
  std::vector<Piece> pieces;  // empty: the whole slice is carried again
};

// The coordinator's part.
class RecoveryCoordinator {
 public:
  explicit RecoveryCoordinator(int ranks) : reports_(static_cast<size_t>(ranks)) {}

  // Some rank has lost the lane's engine. Returns whether this begins an epoch; then the caller
  // tells all ranks to freeze. Otherwise the loss is known already or has to wait.
  bool lose(int lane);
  bool is_recovering() const { return missing_ > 0; }
  uint32_t epoch() const { return epoch_; }
  int lane() const { return lost_.front(); }  // the lane of the epoch under way
  // Returns whether the lane's engine is lost and some ranks' reports on that have not come.
  bool is_lost(int lane) const;

  // Takes a rank's report. The last one ends the epoch and returns the repairs, of which the caller
  // tells all ranks; next() may then begin another epoch. Returns an error for a report that was
  // not asked for.
  absl::StatusOr<std::optional<std::vector<Repair>>> report(int rank, uint32_t epoch,
                                                            std::vector<FrozenPart> parts);
  // Begins the epoch of a loss that had to wait, if there is one. Returns the same as lose().
  bool next();

  std::vector<int> missing() const;  // ranks whose reports have not come

 private:
  bool begin();
  std::vector<Repair> repairs() const;

  uint32_t epoch_ = 0;
  std::deque<int> lost_;  // lost lanes; the first one's epoch is under way
  size_t missing_ = 0;
  std::vector<std::optional<std::vector<FrozenPart>>> reports_;  // indexed by rank
};

}  // namespace nezha
