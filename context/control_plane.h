// SPDX-License-Identifier: Apache-2.0
// One rank's part in balancing a context. It says by which plan each operation runs, sends the
// rank's readings to the coordinator at rank 0, and at rank 0 owns the coordinator.
//
// An allreduce that the plan covers is divided as the allocation of its size class says: each lane
// carries a part. The lanes are
//
// - rank 0's rails, each of which carries a slice as an allreduce of its own;
// - the engines that can be lost;
// - if the context has it, a lane that carries a whole message as stripes over all rails.
//
// All methods are called under Progress's lock.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "collectives/hosts/size_regimes.h"
#include "common/log.h"
#include "context/report_sample.h"
#include "control/control_message.h"
#include "control/coordinator.h"
#include "control/plan_agreement.h"
#include "nezha/context.h"
#include "transport/message_stream.h"
#include "transport/progress.h"

namespace nezha {

class ControlPlaneOwner {
 public:
  // Returns whether this rank has started the operation. It may be over already.
  virtual bool has_started(const OperationId& operation) const = 0;
  // Operations that were held may be started.
  virtual void on_released() = 0;
  // The lane's engine is lost. Fences all tasks on it; none of their operations may return before
  // on_recover. Returns the report that control/recovery.h describes.
  virtual std::vector<FrozenPart> on_freeze(int lane) = 0;
  // Ends the frozen operations as the repairs say. Returns an error if a repair is impossible.
  virtual absl::Status on_recover(int lane, uint32_t epoch, const std::vector<Repair>& repairs) = 0;
  // Returns the sustained rate of the rails together, as their traffic has shown it, or, with
  // `also_tried`, a trial (see RateTrial). The rate is in bytes per second; 0 if it is unknown.
  virtual double rate(RailMask rails, bool also_tried) const = 0;
  // The context cannot go on: a rank has violated the protocol, or is gone while all ranks need its
  // answer.
  virtual void on_failed(const absl::Status& why) = 0;

 protected:
  ~ControlPlaneOwner() = default;
};

class ControlPlane {
 public:
  // With a single lane there are only algorithms to choose from. In contexts of more ranks than
  // this, rank 0 does not connect to all ranks for that.
  static constexpr int kMostOfOneRail = 256;

  struct Options {
    int rank = 0;
    int size = 1;
    uint64_t context = 0;
    RankLog log;
    BalancePolicy policy = BalancePolicy::kModel;
    bool has_stripes = false;              // stripes over all rails are a lane
    bool has_engines = false;              // there are engines that can be lost
    bool takes_engine_alone = false;       // the first engine carries everything while it lives
    bool tries_algorithms = false;         // tries rivals of a size's usual algorithm
    std::string table_path;                // the data length table's file; "": none
    std::optional<DataLengthTable> table;  // what the file held
  };

  ControlPlane(Progress& progress, ControlPlaneOwner& owner, Options options);

  // ---- Setting up

  // Returns whether readings are wanted and this rank has not been connected yet.
  bool is_idle() const { return lanes_.empty(); }
  // An operation named its algorithm. Its time says nothing about the plan's algorithm, so if its
  // size has a rival algorithm, no rivals are tried from now on.
  void saw_named(uint64_t bytes);
  // Returns whether there is something to decide about messages of that size if there are `lanes`
  // lanes.
  bool is_worthwhile(int lanes, uint64_t bytes) const;
  // Sets rank 0's rails by their names, and for each the matching rail of this rank (an empty mask
  // if there is none). The engines that can be lost, the same on all ranks, are the next lanes.
  void set_lanes(const std::vector<std::string>& names, const std::vector<RailMask>& rails,
                 const std::vector<std::string>& engines = {});
  // Rank 0 connects to each other rank, and each other rank to rank 0. Is called after set_lanes.
  void connect(int rank, Channel& channel);

  // ---- Operations

  // Returns whether allreduces of that size run by a plan.
  bool covers(uint64_t bytes) const {
    return options_.takes_engine_alone ? bytes > 0 : bytes >= SizeRegimes::kPlanned;
  }

  // How an operation is carried.
  struct PlannedSplit {
    uint32_t plan = 0;
    uint32_t number = 0;    // the number of its class's allocation; 0: the class has none
    Allocation allocation;  // empty: none is known, and the context's default applies
    Algorithm algorithm = Algorithm::kAuto;  // the hosts'; kAuto: the usual one for the size
    LaneSet engines = 0;  // lanes carried by their engines; the hosts carry lost engines' lanes
    LaneSet waits = 0;    // lanes that must wait for on_recover
  };
  // Says how the operation is carried. Returns nothing if it is held; then it must be started again
  // on on_released(). An operation that nothing is learned from goes as others of its size do.
  std::optional<PlannedSplit> start(const OperationId& operation, uint64_t bytes);
  // The operation is over, or was given up.
  void finish(const OperationId& operation) { follower_.finish(operation); }
  // Adds what this rank measured of an operation. If the times of all lanes are 0, it does not
  // count.
  void add(Reading reading);

  // The lane's engine is not up yet. This is called after set_lanes, before connect.
  void begin_without(int lane) { lost_ |= lane_bit(lane); }
  // This rank can no longer use the lane's engine, or can use it again.
  void lose_engine(int lane);
  void regain_engine(int lane);
  bool is_recovering() const { return recovering_ >= 0; }
  std::string why_frozen() const;  // the text for errors

  // Returns this rank's rails in the lane. The lane of an engine has none.
  RailMask rails(int lane) const { return lanes_[static_cast<size_t>(lane)]; }
  int first_engine() const { return first_engine_; }  // its lane
  int lanes() const { return static_cast<int>(lanes_.size()); }
  // Tells rank 0 if the lanes that work at this rank have changed. `down` are the rails that have
  // failed.
  void set_down(RailMask down);

  // Returns why an operation is held, for errors.
  std::string why_held() const;
  // Returns the whole table at rank 0, and only the allocations at other ranks.
  DataLengthTable table() const;
  // Returns the new contents of the table's file, or nothing if the file stays as it is.
  std::optional<DataLengthTable> learned() const;

 private:
  struct NumberedAllocation {
    uint32_t number = 0;
    Allocation allocation;
    Algorithm algorithm = Algorithm::kAuto;
  };
  using Classes = std::map<SizeClass, NumberedAllocation>;
  struct Plan {
    LaneSet engines = 0;  // lanes that their engines carry
    Classes classes;
  };

  void send(const control_message::Message& message);  // sends to rank 0
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
  std::vector<double> rates(bool also_tried) const;  // see LaneRates
  void create_coordinator();
  void set_awaited(bool is_awaited);
  void flush();
  void tell_lanes();
  LaneSet live() const;
  LaneSet alone() const { return stripes_; }
  Algorithm rival(uint64_t bytes) const;
  // Returns the entry by which messages of that class run: the class's own or, if there are no
  // stripes or there is an engine, that of the nearest class. Returns the end if there is none.
  Classes::const_iterator entry_of(const Classes& classes, SizeClass size_class) const;

  // A batch of readings is sent when it has this many, or after this time.
  static constexpr size_t kBatch = 10;
  static constexpr Nanos kBatchTime = 3 * kMillisecond;

  Progress& progress_;
  ControlPlaneOwner& owner_;
  Options options_;
  std::vector<std::string> names_;  // indexed by lane
  std::vector<RailMask> lanes_;
  LaneSet stripes_ = 0;  // the lane of stripes over all rails, if there is one
  int first_engine_ = 0;
  LaneSet engines_ = 0;  // the lanes of engines that can be lost
  LaneSet lost_ = 0;     // engines_ that this rank has lost
  RailMask down_ = 0;
  LaneSet told_live_ = 0;
  int recovering_ = -1;                                  // the lane that is being recovered
  uint32_t epoch_ = 0;                                   // the recovery's
  std::map<int, std::unique_ptr<MessageStream>> peers_;  // keyed by rank
  PlanFollower follower_;
  std::map<uint32_t, Plan> plans_;    // keyed by number: those an operation may still start by
  RecycledVector<Reading> readings_;  // those not sent yet
  std::deque<control_message::Message> to_broadcast_;
  bool is_broadcasting_ = false;
  Alarm flush_;
  ReportSample sample_;
  std::map<int, LaneSet> ready_;  // rank 0: each rank's lanes, until there is a coordinator
  std::unique_ptr<Coordinator> coordinator_;
  bool saves_ = false;
  bool is_over_ = false;                 // a rank is gone
  std::shared_ptr<ControlPlane*> self_;  // tells deferred functions whether this still exists
};

}  // namespace nezha
