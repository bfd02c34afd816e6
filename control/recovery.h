// SPDX-License-Identifier: Apache-2.0
// How the ranks of a context go on without an engine that is lost, a switch, say. No I/O.
// tests/model/engine_recovery.pml is the model of it.
//
// A rank whose tasks on the engine cannot go on tells the coordinator, rank 0, which takes one loss
// at a time, each an epoch. It tells all ranks to freeze. Each then fences its tasks on the engine,
// starts none there any more, and reports, of every operation that it has a part of there, what is
// final in its output and what it still lacks; of those that it has returned from, what the engine
// has retained (Engine::take_retained). Until the answer none of these operations returns, and the
// parts of others that would run there wait. When all have reported, the answer names the repairs:
//
// - Of an operation of which no rank has anything final the hosts engine carries the whole slice,
//   from the inputs, which are intact. A rank that had not started it does so too when it comes to
//   it: so it need not be there, and may be late by any time.
// - Otherwise every rank has started it, since a sum has something of each. Of each piece that a
//   rank lacks: if another has it, it broadcasts it, in the very bits; if none has, it is reduced
//   again. A rank that has returned takes part with memory of its own.
//
// Why no rank may have let go of what another lacks: an engine retains it. So a rank may return at
// once, and nothing of this is on the way of an operation whose engine lives.
//
// That an engine works again is a change of the plan like any other (plan_agreement.h): plans say
// which lanes their engines carry, and a loss takes the lane from all plans until then, for good.
//
// The inputs are the operation's: those of a rank that dies are gone, so without one of the ranks
// there is no recovery, and the context fails.
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
  ChunkMap final;    // it can give
  ChunkMap missing;  // it lacks
};

// What becomes of one operation's part.
struct Repair {
  static constexpr int kNobody = -1;
  struct Piece {
    Range range;
    int source = kNobody;  // a rank that has it
  };
  OperationId operation;
  std::vector<Piece> pieces;  // none: all of it, as if it had not begun
};

// The coordinator's part.
class RecoveryCoordinator {
 public:
  explicit RecoveryCoordinator(int ranks) : reports_(static_cast<size_t>(ranks)) {}

  // The lane's engine is lost for some rank. Whether that begins an epoch, in which all ranks are
  // to be told to freeze; else it was known, or has to wait.
  bool lose(int lane);
  bool is_recovering() const { return missing_ > 0; }
  uint32_t epoch() const { return epoch_; }
  int lane() const { return lost_.front(); }  // of the epoch under way
  // Whether its ranks' reports are not all there yet.
  bool is_lost(int lane) const;

  // A rank's report. Once all are there, the repairs, of which all ranks are to be told; the epoch
  // is over then, and next() may begin another. An error if it was not asked for, or cannot be.
  absl::StatusOr<std::optional<std::vector<Repair>>> report(int rank, uint32_t epoch,
                                                            std::vector<FrozenPart> parts);
  // As lose(), of what had to wait.
  bool next();

  std::vector<int> missing() const;  // the ranks whose reports are

 private:
  bool begin();
  std::vector<Repair> repairs() const;

  uint32_t epoch_ = 0;
  std::deque<int> lost_;  // lanes; the first one's epoch is under way
  size_t missing_ = 0;
  std::vector<std::optional<std::vector<FrozenPart>>> reports_;  // by rank
};

}  // namespace nezha
