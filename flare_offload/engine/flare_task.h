// SPDX-License-Identifier: Apache-2.0
// The part of one operation that a switch adds up.
//
// Every rank contributes to each block and gets its result, whatever the operation: otherwise the
// session's windows would not move (core/slot_table.h). A reduce is an allreduce whose result only
// the root wants. A broadcast is the bytewise maximum of the root's bytes and the others' zeros,
// which is exact where a sum is not (of -0 and 0, say). A barrier is such a broadcast of a byte.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "collectives/chunk_map.h"
#include "collectives/engine.h"
#include "flare_offload/engine/switch_session.h"

namespace nezha::flare {

class FlareTask;

class FlareTaskOwner {
 public:
  // The task was detached before it was done, and needs nothing any more.
  virtual void on_detached(FlareTask& task) = 0;
  // All blocks of the task have their results.
  virtual void on_task_done(FlareTask& task) = 0;
  virtual void on_task_pending(FlareTask& task, const std::vector<RankRange>& missing) = 0;
  // Returns why a task that has no stream yet waits.
  virtual std::string why_waiting() const = 0;

 protected:
  ~FlareTaskOwner() = default;
};

// All methods are called under Progress's lock.
class FlareTask final : public Task, BlockOwner {
 public:
  static constexpr int kNoStream = -1;

  // supports() must accept the operation; `payload` is the session's. All ranks get the result, and
  // so have an output; a rank that contributes nothing has no input.
  FlareTask(FlareTaskOwner& engine, const Group& group, const Slice& slice, const EnginePlan& plan,
            size_t payload, TaskOwner& owner);
  ~FlareTask() override { detach(); }

  // Returns OK if a switch can carry out the operation, or the reason why no switch can.
  static absl::Status supports(const Operation& operation);

  const Operation& operation() const { return slice_.operation; }
  uint32_t blocks() const { return blocks_; }
  int stream() const { return stream_; }
  void run(SwitchSession& session, int stream);
  // Ends a task that has no blocks.
  void end() { on_complete(); }
  void fail(const absl::Status& why) { finish(State::kFailed, why); }
  void lose(const absl::Status& why) { finish(State::kLost, why); }

  std::string describe() const override;
  bool has_slack() const override { return blocks_ >= kManyBlocks; }

  Nanos started_at = 0;
  bool is_told = false;  // rank 0 knows that it has started

 private:
  // A task of this many blocks has several trains of them, so that what is on its way lasts for a
  // millisecond or more.
  static constexpr uint32_t kManyBlocks = 128;

  // BlockOwner
  BlockId id() const override;
  absl::Span<const std::byte> contribution(uint32_t block) override;
  bool take(uint32_t block, absl::Span<const std::byte> result) override;
  void retain(uint32_t block, Retained& copy) const override;
  void on_complete() override;
  void on_pending(const std::vector<RankRange>& missing) override;
  void on_mismatch(const Frame& frame) override;
  void on_misfit() override;

  // Task
  void detach() override;
  ChunkMap final_chunks() const override;

  Range range(uint32_t block) const;
  // Returns the operation whose blocks have that name, as a user would describe it.
  std::string operation_of(uint32_t name) const;

  FlareTaskOwner* engine_;  // null: detached
  const int rank_;
  const int ranks_;
  const Slice slice_;
  const EnginePlan plan_;
  const uint32_t name_;          // the same on all ranks that call the same operation
  const ChunkMap ranges_;        // the slice's
  std::vector<uint32_t> first_;  // the first block of each range
  size_t per_block_;             // bytes
  uint32_t blocks_ = 0;
  std::vector<bool> taken_;  // indexed by block
  uint32_t taken_count_ = 0;
  SwitchSession* session_ = nullptr;
  int stream_ = kNoStream;
  std::vector<RankRange> missing_;
};

}  // namespace nezha::flare
