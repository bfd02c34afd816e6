// SPDX-License-Identifier: Apache-2.0
// This rank's part in the control of its context: by which plan its operations run, what it tells
// the coordinator, and, at rank 0, the coordinator itself.
//
// An allreduce that the plan covers runs by it: by its size class's allocation to lanes.
// A lane is a rail that carries a slice, an allreduce of its own; one lane more, if the context has
// it, is the whole message as stripes over all rails; and so many more as there are engines that
// can be lost. All under Progress's lock.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/hash_map.h"
#include "common/log.h"
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
  // The lane's engine is lost. Fences all tasks there; none of their operations is to return before
  // on_recover. What recovery.h says is to be reported.
  virtual std::vector<FrozenPart> on_freeze(int lane) = 0;
  // How these end. An error if the repairs cannot be.
  virtual absl::Status on_recover(int lane, uint32_t epoch, const std::vector<Repair>& repairs) = 0;
  // At which these go on for long, as far as what they carried has shown, or `also` a trial (see
  // RateTrial). Bytes per second; 0: unknown.
  virtual double rate(RailMask rails, bool also_tried) const = 0;
  // A rank says what cannot be, or nothing although all need its answer: the context cannot go on.
  virtual void on_failed(const absl::Status& why) = 0;

 protected:
  ~ControlPlaneOwner() = default;
};

class ControlPlane {
 public:
  // Shorter messages are over before a second rail could help, and go by whatever link is best.
  static constexpr uint64_t kLeastBytes = 4 << 10;
  // Ranks that rank 0 is connected to for the sake of algorithms alone.
  static constexpr int kMostOfOneRail = 256;
  // From here on stripes are as good as slices, and follow a change within an operation.
  static constexpr uint64_t kStripesFrom = 8 << 20;

  struct Options {
    int rank = 0;
    int size = 1;
    uint64_t context = 0;
    RankLog log;
    BalancePolicy policy = BalancePolicy::kModel;
    bool has_stripes = false;              // whether that is a lane
    bool has_engines = false;              // whether there are some
    bool takes_engine_alone = false;       // all goes by the first engine, as long as it lives
    bool tries_algorithms = false;         // where another one than that of the size may be better
    std::string table_path;                // of the data length table; "" for none
    std::optional<DataLengthTable> table;  // what it held
  };

  ControlPlane(Progress& progress, ControlPlaneOwner& owner, Options options);

  // ---- Setting up

  // Whether readings are wanted and this rank has not been connected yet.
  bool is_idle() const { return lanes_.empty(); }
  // An operation named its algorithm: what such operations take says nothing of the plan's, and no
  // other one is tried any more if there was one for its size.
  void saw_named(uint64_t bytes);
  // Whether there is something to decide about messages of that size with so many lanes.
  bool is_worthwhile(int lanes, uint64_t bytes) const;
  // Rank 0's rails, and which of this rank's each of them is: none if it has no such one. Behind
  // them the engines that can be lost, the same on all ranks.
  void set_lanes(const std::vector<std::string>& names, const std::vector<RailMask>& rails,
                 const std::vector<std::string>& engines = {});
  // Rank 0: to each other rank; the others: to rank 0. After set_lanes.
  void connect(int rank, Channel& channel);

  // ---- Operations

  // Whether allreduces of that size run by the plan.
  bool covers(uint64_t bytes) const {
    if (options_.takes_engine_alone) return bytes > 0;
    const bool is_for_stripes = options_.has_stripes && !options_.has_engines;
    return bytes >= kLeastBytes && !(is_for_stripes && bytes >= kStripesFrom);
  }

  // How an operation is carried.
  struct PlannedSplit {
    uint32_t plan = 0;
    uint32_t number = 0;    // of its class's allocation; 0: it has none of its own
    Allocation allocation;  // empty: none is known, and it goes by the context's default
    Algorithm algorithm = Algorithm::kAuto;  // of hosts; kAuto: the one of its size
    LaneSet engines = 0;  // the lanes that their engines carry; the hosts do others'
    LaneSet waits = 0;    // the lanes that are to wait for on_recover
  };
  // None: it is held, and to be started again on on_released(). One that is not learned from goes
  // as the others of its size do.
  std::optional<PlannedSplit> start(const OperationId& operation, uint64_t bytes);
  // It is over, or was given up.
  void finish(const OperationId& operation) { follower_.finish(operation); }
  // What this rank measured of it. All lanes 0: nothing that counts.
  void add(Reading reading);

  // The lane's engine carries nothing yet. After set_lanes, before connect.
  void begin_without(int lane) { lost_ |= lane_bit(lane); }
  // The lane's engine carries nothing here any more, or does so again.
  void lose_engine(int lane);
  void regain_engine(int lane);
  bool is_recovering() const { return recovering_ >= 0; }
  std::string why_frozen() const;  // for errors

  // The rails of a lane here: an engine's has none.
  RailMask rails(int lane) const { return lanes_[static_cast<size_t>(lane)]; }
  int first_engine() const { return first_engine_; }  // lane
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
    Algorithm algorithm = Algorithm::kAuto;
  };
  using Classes = std::map<SizeClass, NumberedAllocation>;
  struct Plan {
    LaneSet engines = 0;  // that carry their lanes
    Classes classes;
  };

  // Of a class, since its last change: decides which operations the coordinator is told of.
  struct Told {
    uint32_t number = 0;    // of the allocation
    int count = 0;          // operations by it; no more than matter
    bool was_dense = true;  // whether all of those by the one before were
  };

  void send(const control_message::Message& message);  // to rank 0
  void broadcast(const control_message::Message& message);
  void on_bytes(int from, const std::string& bytes);
  absl::Status on_message(int from, const control_message::Message& message);
  absl::Status on_lanes(int from, LaneSet live);
  absl::Status on_prepare(uint32_t plan);
  absl::Status on_commit(const control_message::Commit& commit);
  void tell_of(uint32_t plan, const AllocationChange& change) const;
  absl::Status on_freeze(const control_message::Freeze& freeze);
  absl::Status on_recover(const control_message::Recover& recover);
  void on_peer_gone(int rank, const absl::Status& why);
  std::unique_ptr<Policy> make_policy() const;
  std::vector<LoadBalancer::Way> other_ways() const;
  std::vector<double> rates(bool also_tried) const;  // see LaneRates
  bool may_take_turns() const;
  int fastest_rail(LaneSet among) const;
  void create_coordinator();
  void set_awaited(bool is_awaited);
  void flush();
  void tell_lanes();
  LaneSet live() const;
  LaneSet alone() const { return stripes_; }
  Algorithm rival(uint64_t bytes) const;
  // What messages of that class run by: the entry of the class or, where there are no stripes or
  // there is an engine, of the nearest one. The end if there is none.
  Classes::const_iterator entry_of(const Classes& classes, SizeClass size_class) const;
  bool is_sampled(const Reading& reading);

  // Readings go in one message: so many, or those of that time.
  static constexpr size_t kBatch = 10;
  static constexpr Nanos kBatchTime = 3 * kMillisecond;

  Progress& progress_;
  ControlPlaneOwner& owner_;
  Options options_;
  std::vector<std::string> names_;  // of lanes
  std::vector<RailMask> lanes_;
  LaneSet stripes_ = 0;  // the lane of all rails, if there is one
  int first_engine_ = 0;
  LaneSet engines_ = 0;  // the lanes that have engines of their own,
  LaneSet lost_ = 0;     // and of these those that are lost here
  RailMask down_ = 0;
  LaneSet told_live_ = 0;
  int recovering_ = -1;                                  // the lane whose loss is being answered
  uint32_t epoch_ = 0;                                   // of that
  std::map<int, std::unique_ptr<MessageStream>> peers_;  // by rank
  PlanFollower follower_;
  std::map<uint32_t, Plan> plans_;    // by number; those that an operation may still start by
  RecycledVector<Reading> readings_;  // not sent yet
  std::deque<control_message::Message> to_broadcast_;
  bool is_broadcasting_ = false;
  Alarm flush_;
  HashMap<SizeClass, Told> told_;
  std::map<int, LaneSet> ready_;  // rank 0: what each rank said first
  std::unique_ptr<Coordinator> coordinator_;
  bool saves_ = false;
  bool is_over_ = false;                 // a rank is gone
  std::shared_ptr<ControlPlane*> self_;  // for what is deferred
};

}  // namespace nezha
