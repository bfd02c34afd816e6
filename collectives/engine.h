// SPDX-License-Identifier: Apache-2.0
// Engines: what carries out a collective on a slice of memory.
//
// The hosts engine is there as long as the ranks are: a rail that dies costs its messages a resend
// by another, pair by pair (channel.h), and no rank but the two hears of it. An engine that others
// than the ranks carry, a switch, can be lost: its tasks end as kLost. Then all ranks' tasks on it
// are frozen, and the hosts engine finishes what they began; control/recovery.h says how.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "collectives/blocks.h"
#include "collectives/chunk_map.h"
#include "collectives/collective.h"
#include "collectives/operation_id.h"
#include "collectives/partition.h"
#include "collectives/reducer.h"
#include "collectives/schedule_kind.h"
#include "common/recycled.h"
#include "nezha/types.h"
#include "transport/channel.h"

namespace nezha {

// The ranks that take part, as the engines see them.
struct Group {
  int rank = 0;
  int size = 1;
  uint64_t context = 0;            // its id, for messages
  std::vector<Channel*> channels;  // by rank; null where none was asked for, and for this rank
  BufferPool* pool = nullptr;
  RailMask rails = kAllRails;  // the context's
};

// One collective operation. The memory is the caller's, and stays until the operation is over.
//
// It is about one vector, of which a rank may have no more than a part: the input is what it has in
// the beginning, and the output what it has in the end. In an allgather the input is the rank's
// block and the output is the vector; in a reduce_scatter it is the other way round. An alltoall
// has two vectors: the one that a rank sends, its input, and the one that it gets, its output.
struct Operation {
  Collective collective = Collective::kAllreduce;
  int root = 0;                                     // if the collective has one
  const std::byte* input = nullptr;                 // null where nothing comes from
  std::byte* output = nullptr;                      // may be the input; null where no result goes
  size_t elements = 0;                              // of the vector
  size_t element_size = 0;                          // bytes
  size_t input_offset = 0;                          // bytes: where in the vector the input begins
  size_t output_offset = 0;                         // likewise
  std::shared_ptr<const Blocks> blocks{};           // of the vector, if the collective has any
  std::shared_ptr<const Blocks> received_blocks{};  // of an alltoall's other vector
  DataType type = DataType::kFloat32;
  ReduceOperation operation = ReduceOperation::kSum;
  const ReduceFunction* function = nullptr;  // the caller's, of kCustom
  bool commutative = true;                   // else operands stay in the order of ranks
  bool reproducible = false;                 // summed over the tree of ranks
  uint32_t tag = 0;
  uint64_t ordinal = 0;  // among the operations of its tag, from 1: with the tag, its name

  OperationId id() const { return {tag, ordinal}; }
  size_t bytes() const { return elements * element_size; }
  // Where a place in the vector is in memory, if the input or the output has it.
  const std::byte* input_at(size_t offset) const { return input + (offset - input_offset); }
  std::byte* output_at(size_t offset) const { return output + (offset - output_offset); }
  const Blocks& blocks_received() const { return received_blocks ? *received_blocks : *blocks; }
  // Whether a part of it, in bytes, cuts no element.
  bool is_whole(uint64_t offset, uint64_t length) const {
    return offset % element_size == 0 && length % element_size == 0;
  }
  Reducer reducer(int ranks) const { return {type, operation, function, ranks}; }
};

// What all ranks agree on for an operation.
struct EnginePlan {
  ScheduleKind schedule = ScheduleKind::kRing;
  uint32_t version = 0;
  uint32_t epoch = 0;
};

// What one task is to do.
struct Slice {
  Operation operation;
  SliceBounds bounds;
  uint8_t lane = 0;            // tells the slices of one operation apart
  RailMask rails = kAllRails;  // that carry it
  uint32_t piece = 0;          // of a recovery: tells its messages from others; 0: of none
};

// Where no rank but this one adds to its own block of the input, that is its block of the output.
void copy_own_block(const Operation& operation, const Group& group);

// What of the operation's vector it is. A ring has a slice of each of its chunks.
ChunkMap ranges_of(const Operation& operation, const SliceBounds& bounds, ScheduleKind schedule,
                   int ranks);

class Task;

class TaskOwner {
 public:
  // The task is done or has failed. Under Progress's lock; the task may not be destroyed in it.
  virtual void on_finished(Task& task) = 0;

 protected:
  ~TaskOwner() = default;
};

// A slice being worked on. All under Progress's lock. The inputs stay intact where the output holds
// no final value yet: the user's memory is overwritten by final values only.
class Task : public Recycled {
 public:
  // kLost: its engine is gone for this rank, and what final_chunks() lacks another may carry. What
  // kFailed says fails the operation, and its context.
  enum class State { kRunning, kDone, kFailed, kLost };

  virtual ~Task() = default;
  Task(const Task&) = delete;
  Task& operator=(const Task&) = delete;

  State poll() const { return state_; }
  const absl::Status& status() const { return status_; }

  // The fence: from here on nothing reads or writes the caller's memory. A task that was running
  // has failed, and its owner is not told. Returns what of the output is final here.
  ChunkMap freeze() {
    detach();
    if (state_ == State::kRunning) {
      state_ = State::kFailed;
      status_ = absl::CancelledError("frozen");
    }
    return final_chunks();
  }

  // Whom it waits for and what it has so far, for the error of a timeout.
  virtual std::string describe() const = 0;
  // Whether so much is on its way that what comes may lie for a while: who waits need not poll.
  virtual bool has_slack() const { return false; }
  // For how long it is best left alone, if it has slack: until enough has come to be worth waking.
  virtual Nanos rest() const { return 0; }

 protected:
  explicit Task(TaskOwner& owner) : owner_(owner) {}
  // Gives up all messages. The destructors of those who implement it call it too.
  virtual void detach() = 0;
  // What of its slice is final in the output, byte for byte, once it is detached; where nothing is,
  // the input is as it was. Of an engine that can be lost: of a task that is done it is all of it.
  virtual ChunkMap final_chunks() const { return {}; }
  void finish(State state, absl::Status status = absl::OkStatus()) {
    if (state_ != State::kRunning) return;
    state_ = state;
    status_ = std::move(status);
    owner_.on_finished(*this);
  }
  State state_ = State::kRunning;
  absl::Status status_;

 private:
  TaskOwner& owner_;
};

// The end of a task's result, which others may lack although this rank has returned it to its
// caller.
struct Retained {
  uint32_t tag = 0;  // the operation's
  uint64_t ordinal = 0;
  uint8_t lane = 0;
  size_t offset = 0;  // in the operation's vector
  std::vector<std::byte> bytes;
};

class Engine {
 public:
  virtual ~Engine() = default;
  // Of an engine that can be lost: copies of what tasks that were done here have in their outputs
  // and another rank may lack, for as long as that is so. A session of W slots is one whose rank
  // gets the result of block s only after all ranks have that of block s-W: the last W blocks that
  // it has finished. Asked for when the engine is frozen, and given up.
  virtual std::vector<Retained> take_retained() { return {}; }
  // Whether it can carry out such an operation; why not, if it cannot. The same on all ranks.
  virtual absl::Status supports(const Operation& /*operation*/) const { return absl::OkStatus(); }
  // The ranks it will exchange data with: their channels must be in the group before start.
  virtual std::vector<int> peers(const Group& group, const Operation& operation,
                                 const EnginePlan& plan) const = 0;
  // Never blocks. The task may be finished when this returns.
  virtual absl::StatusOr<std::unique_ptr<Task>> start(const Group& group, const Slice& slice,
                                                      const EnginePlan& plan, TaskOwner& owner) = 0;
};

}  // namespace nezha
