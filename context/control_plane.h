// This rank's part in the control of its context: by which plan its operations run, what it tells
// the coordinator, and, at rank 0, the coordinator itself.
//
// An allreduce that the plan covers runs by it: by its size class's allocation to lanes.
// A lane is a rail that carries a slice, an allreduce of its own; one lane more, if the context has
// it, is the whole message as stripes over all rails. All under Progress's lock.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "control/control_message.h"
#include "control/coordinator.h"
#include "control/plan_agreement.h"
#include "nezha/context.h"
#include "transport/message_stream.h"
#include "transport/progress.h"

namespace nezha {

class ControlPlaneOwner {
 public:
  // Whether this rank has started the operation, which may be over.
  virtual bool has_started(const OperationId& operation) const = 0;
  // What was held may be started.
  virtual void on_released() = 0;
  // A rank says what cannot be.
  virtual void on_nonsense(const absl::Status& why) = 0;

 protected:
  ~ControlPlaneOwner() = default;
};

class ControlPlane {
 public:
  // Shorter messages are over before a second rail could help, and go by whatever link is best.
  static constexpr uint64_t kLeastBytes = 4 << 10;
  // From here on stripes are as good as slices, and follow a change within an operation.
  static constexpr uint64_t kStripesFrom = 512 << 10;

  struct Options {
    int rank = 0;
    int size = 1;
    uint64_t context = 0;
    std::string rank_of;  // "rank 1 of 4"
    BalancePolicy policy = BalancePolicy::kModel;
    bool has_stripes = false;              // whether that is a lane
    std::string table_path;                // of the data length table; "" for none
    std::optional<DataLengthTable> table;  // what it held
  };

  ControlPlane(Progress& progress, ControlPlaneOwner& owner, Options options);

  // ---- Setting up

  // Whether readings are wanted and this rank has not been connected yet.
  bool is_idle() const { return lanes_.empty(); }
  // Rank 0's rails, and which of this rank's each of them is: none if it has no such one.
  void set_lanes(const std::vector<std::string>& names, const std::vector<RailMask>& rails);
  // Rank 0: to each other rank; the others: to rank 0. After set_lanes.
  void connect(int rank, Channel& channel);

  // ---- Operations

  // Whether allreduces of that size run by the plan.
  bool covers(uint64_t bytes) const {
    return bytes >= kLeastBytes && !(options_.has_stripes && bytes >= kStripesFrom);
  }

  // How an operation is carried.
  struct Course {
    uint32_t plan = 0;
    uint32_t number = 0;    // of its class's allocation; 0: it has none of its own
    Allocation allocation;  // empty: none is known, and it goes by the context's default
  };
  // None: it is held, and to be started again on on_released().
  std::optional<Course> start(const OperationId& operation, uint64_t bytes);
  // It is over, or was given up.
  void finish(const OperationId& operation) { follower_.finish(operation); }
  // What this rank measured of it. All lanes 0: nothing that counts.
  void add(Reading reading);

  // The rails of a lane here.
  RailMask rails(int lane) const { return lanes_[static_cast<size_t>(lane)]; }
  int lanes() const { return static_cast<int>(lanes_.size()); }
  // The rails that work here are others, perhaps: `down` are those that have failed.
  void set_down(RailMask down);

  // Why an operation is held, for errors.
  std::string why_held() const;
  // Rank 0's; elsewhere allocations only.
  DataLengthTable table() const;
  // What the table's file is to hold from now on; none if that is to stay as it is.
  std::optional<DataLengthTable> learned() const;

 private:
  struct NumberedAllocation {
    uint32_t number = 0;
    Allocation allocation;
  };
  using Plan = std::map<SizeClass, NumberedAllocation>;

  void send(const control_message::Message& message);  // to rank 0
  void broadcast(const control_message::Message& message);
  void on_bytes(int from, const std::string& bytes);
  absl::Status on_message(int from, const control_message::Message& message);
  absl::Status on_lanes(int from, LaneSet live);
  absl::Status on_prepare(uint32_t plan);
  absl::Status on_commit(const control_message::Commit& commit);
  void on_peer_gone(int rank, const absl::Status& why);
  std::unique_ptr<Policy> make_policy() const;
  void create_coordinator();
  void set_awaited(bool is_awaited);
  void flush();
  LaneSet live() const;
  LaneSet alone() const { return options_.has_stripes ? lane_bit(lanes() - 1) : 0; }
  bool is_sampled(const Reading& reading);

  // Readings go in one message: so many, or those of that time.
  static constexpr size_t kBatch = 10;
  static constexpr Nanos kBatchTime = 3 * kMillisecond;

  Progress& progress_;
  ControlPlaneOwner& owner_;
  Options options_;
  std::vector<std::string> names_;  // of lanes
  std::vector<RailMask> lanes_;
  RailMask down_ = 0;
  LaneSet told_live_ = 0;
  std::map<int, std::unique_ptr<MessageStream>> peers_;  // by rank
  PlanFollower follower_;
  std::map<uint32_t, Plan> plans_;  // by number; those that an operation may still start by
  std::vector<Reading> readings_;   // not sent yet
  Alarm flush_;
  absl::flat_hash_map<SizeClass, std::pair<uint32_t, int>> counts_;  // readings by an allocation
  std::map<int, LaneSet> ready_;  // rank 0: what each rank said first
  std::unique_ptr<Coordinator> coordinator_;
  bool saves_ = false;
  bool is_over_ = false;                 // a rank is gone
  std::shared_ptr<ControlPlane*> self_;  // for what is deferred
};

}  // namespace nezha
