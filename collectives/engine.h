// SPDX-License-Identifier: Apache-2.0
// Engines: an engine carries out a collective on a slice of memory.
//
// The hosts engine exists as long as the ranks do. If a rail dies, another rail resends its
// messages, pair by pair (channel.h), and only the two ranks of a pair notice. An engine that does
// not consist of the ranks, such as a switch, can be lost: its tasks end as kLost. Then the tasks
// on it are frozen on all ranks, and the hosts engine finishes what they began; control/recovery.h
// says how.
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
  std::vector<Channel*> channels;  // indexed by rank; null if not asked for, and for this rank
  BufferPool* pool = nullptr;
  RailMask rails = kAllRails;  // the context's
};

// One collective operation. The memory is the caller's, and stays until the operation is over.
//
// An operation is about one vector, of which a rank may have only a part: the input is the part
// that the rank has in the beginning, and the output the part that it has in the end. In an
// allgather the input is the rank's block and the output is the vector; in a reduce_scatter it is
// the other way round. An alltoall has two vectors: a rank sends its input and receives its output.
struct Operation {
  Collective collective = Collective::kAllreduce;
  int root = 0;                            // if the collective has one
  const std::byte* input = nullptr;        // null if this rank has none
  std::byte* output = nullptr;             // may be the input; null if this rank gets no result
  size_t elements = 0;                     // the vector's
  size_t element_size = 0;                 // bytes
  size_t input_offset = 0;                 // bytes: where in the vector the input begins
  size_t output_offset = 0;                // bytes: where in the vector the output begins
  std::shared_ptr<const Blocks> blocks{};  // the vector's, if the collective has any
  std::shared_ptr<const Blocks> received_blocks{};  // an alltoall's output's; null: as `blocks`
  DataType type = DataType::kFloat32;
  ReduceOperation operation = ReduceOperation::kSum;
  const ReduceFunction* function = nullptr;  // the caller's, for kCustom
  bool commutative = true;                   // if false, operands stay in rank order
  bool reproducible = false;                 // summed over the tree of ranks
  uint32_t tag = 0;
  uint64_t ordinal = 0;  // counts the operations of the tag, from 1

  OperationId id() const { return {tag, ordinal}; }
  size_t bytes() const { return elements * element_size; }
  // These return the address of a place in the vector, which must be in the input or in the output.
  const std::byte* input_at(size_t offset) const { return input + (offset - input_offset); }
  std::byte* output_at(size_t offset) const { return output + (offset - output_offset); }
  const Blocks& blocks_received() const { return received_blocks ? *received_blocks : *blocks; }
  // Returns whether a part of the vector, in bytes, consists of whole elements.
  bool is_whole(uint64_t offset, uint64_t length) const {
    return offset % element_size == 0 && length % element_size == 0;
  }
  Reducer reducer(int ranks) const { return {type, operation, function, ranks}; }
};

// The plan of an operation, on which all ranks agree.
struct EnginePlan {
  ScheduleKind schedule = ScheduleKind::kRing;
  uint32_t version = 0;
  uint32_t epoch = 0;
};

// The part of an operation that one task carries out.
struct Slice {
  Operation operation;
  SliceBounds bounds;
  uint8_t lane = 0;            // tells the slices of one operation apart
  RailMask rails = kAllRails;  // the rails that may carry it
  uint32_t piece = 0;          // of a recovery, to tell its messages from others; 0: no recovery
};

// Copies this rank's own block from the input to the output, unless other ranks add to that block.
void copy_own_block(const Operation& operation, const Group& group);

// Returns the ranges of the operation's vector that a slice with these bounds covers. A ring
// allreduce has a slice of each of its chunks.
ChunkMap ranges_of(const Operation& operation, const SliceBounds& bounds, ScheduleKind schedule,
                   int ranks);

class Task;

class TaskOwner {
 public:
  // Tells the owner that the task is no longer running. Is called under Progress's lock; the owner
  // may not destroy the task during the call.
  virtual void on_finished(Task& task) = 0;

 protected:
  ~TaskOwner() = default;
};

// A slice being worked on. All members are called under Progress's lock. Only final values
// overwrite the user's memory, so the input stays intact wherever the output holds no final value
// yet.
class Task : public Recycled {
 public:
  // kLost: this rank has lost the engine, and another engine may carry what final_chunks() lacks.
  // kFailed: the operation fails, and its context with it.
  enum class State { kRunning, kDone, kFailed, kLost };

  virtual ~Task() = default;
  Task(const Task&) = delete;
  Task& operator=(const Task&) = delete;

  State poll() const { return state_; }
  const absl::Status& status() const { return status_; }

  // The fence: from here on nothing reads or writes the caller's memory. A task that was running
  // becomes kFailed, and its owner is not told. Returns the parts of the output that are final on
  // this rank.
  ChunkMap freeze() {
    detach();
    if (state_ == State::kRunning) {
      state_ = State::kFailed;
      status_ = absl::CancelledError("frozen");
    }
    return final_chunks();
  }

  // Says which ranks the task waits for and what it has received so far, for the error of a
  // timeout.
  virtual std::string describe() const = 0;
  // Returns whether so much is on its way that arriving data may lie for a while: a waiting thread
  // need not poll.
  virtual bool has_slack() const { return false; }
  // Returns how long the task, if it has slack, is best left alone: until enough has arrived to be
  // worth waking up for.
  virtual Nanos rest() const { return 0; }

 protected:
  explicit Task(TaskOwner& owner) : owner_(owner) {}
  // Gives up all messages. The destructors of derived classes also call it.
  virtual void detach() = 0;
  // Returns the parts of the slice that are final in the output, byte for byte, once the task is
  // detached. Outside of them the input is as it was. If the engine can be lost, a task that is
  // done returns its whole slice.
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

// The end of a task's result. Other ranks may lack it although this rank has already returned the
// result to its caller.
struct Retained {
  uint32_t tag = 0;  // the operation's
  uint64_t ordinal = 0;
  uint8_t lane = 0;
  size_t offset = 0;  // the place in the operation's vector
  std::vector<std::byte> bytes;
};

class Engine {
 public:
  virtual ~Engine() = default;
  // Gives up the engine's copies of results that tasks have completed on this rank and that another
  // rank may still lack. Only an engine that can be lost has such copies. In a session of W slots,
  // a rank gets the result of block s only after all ranks have that of block s-W, so the copies
  // are the last W blocks that the rank has finished. Is called when the engine is frozen.
  virtual std::vector<Retained> take_retained() { return {}; }
  // Returns OK if the engine can carry out such an operation, otherwise the reason why not. All
  // ranks get the same result.
  virtual absl::Status supports(const Operation& /*operation*/) const { return absl::OkStatus(); }
  // Returns the ranks that this rank will exchange data with: their channels must be in the group
  // before start().
  virtual std::vector<int> peers(const Group& group, const Operation& operation,
                                 const EnginePlan& plan) const = 0;
  // Never blocks. The task may be finished when this returns.
  virtual absl::StatusOr<std::unique_ptr<Task>> start(const Group& group, const Slice& slice,
                                                      const EnginePlan& plan, TaskOwner& owner) = 0;
};

}  // namespace nezha
