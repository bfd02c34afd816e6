// SPDX-License-Identifier: Apache-2.0
#include "collectives/hosts/hosts_engine.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "collectives/hosts/bcube.h"
#include "collectives/hosts/bruck.h"
#include "collectives/hosts/bruck_alltoall.h"
#include "collectives/hosts/choice.h"
#include "collectives/hosts/direct.h"
#include "collectives/hosts/dissemination.h"
#include "collectives/hosts/halving.h"
#include "collectives/hosts/halving_doubling.h"
#include "collectives/hosts/pairwise.h"
#include "collectives/hosts/recursive_doubling.h"
#include "collectives/hosts/ring.h"
#include "collectives/hosts/scheduled_task.h"
#include "collectives/hosts/tree.h"
#include "collectives/signature.h"

namespace nezha {
namespace {

// A group of one: the result is the input.
class Alone final : public Task {
 public:
  Alone(Operation op, TaskOwner& owner) : Task(owner), op_(std::move(op)) {}
  void start(const Group& group) {
    copy_own_block(op_, group);
    if (op_.blocks == nullptr && op_.output != nullptr && op_.input != op_.output &&
        op_.bytes() > 0) {
      std::memcpy(op_.output, op_.input, op_.bytes());
    }
    finish(State::kDone);
  }
  std::string describe() const override { return "alone: complete"; }

 private:
  void detach() override {}
  Operation op_;
};

Schedule schedule_of_allreduce(ScheduleKind kind, int rank, int size) {
  switch (kind) {
    case ScheduleKind::kHalvingDoubling:
      return halving_doubling(rank, size);
    case ScheduleKind::kDirect:
      return direct(rank, size);
    case ScheduleKind::kBcube:
      return bcube(rank, size);
    default:
      return recursive_doubling(rank, size);
  }
}

// Makes a schedule of any kind, except those that go from neighbour to neighbour.
Schedule schedule_of(const Operation& op, ScheduleKind kind, int rank, int size) {
  const bool is_direct = kind == ScheduleKind::kDirect;
  const bool is_tree = kind == ScheduleKind::kTree;
  switch (op.collective) {
    case Collective::kAllreduce:
      break;
    case Collective::kBarrier:
      return dissemination(rank, size);
    case Collective::kBroadcast:
      return tree_broadcast(rank, op.root, size);
    case Collective::kReduce:
      if (is_direct) return direct_reduce(rank, op.root, size);
      return is_tree ? tree_reduce(rank, op.root, size) : ordered_tree_reduce(rank, op.root, size);
    case Collective::kAllgather:
      return is_direct ? direct_allgather(rank, size) : bruck_allgather(rank, size);
    case Collective::kReduceScatter:
      return is_direct ? direct_reduce_scatter(rank, size) : halving_reduce_scatter(rank, size);
    case Collective::kAlltoall:
    case Collective::kAlltoallv:
      return is_direct ? direct_alltoall(rank, size) : pairwise_alltoall(rank, size);
    case Collective::kGather:
    case Collective::kGatherv:
      return is_tree ? tree_gather(rank, op.root, size) : direct_gather(rank, op.root, size);
    case Collective::kScatter:
    case Collective::kScatterv:
      return is_tree ? tree_scatter(rank, op.root, size) : direct_scatter(rank, op.root, size);
  }
  return schedule_of_allreduce(kind, rank, size);
}

bool is_around_ring(ScheduleKind kind) {
  return kind == ScheduleKind::kRing || kind == ScheduleKind::kChain;
}

bool is_bruck_alltoall(const Operation& op, ScheduleKind kind) {
  return kind == ScheduleKind::kBruck && op.collective == Collective::kAlltoall;
}

std::vector<int> peers_of(const Schedule& schedule) {
  std::vector<int> peers;
  const auto add = [&](const Transfer& transfer) { peers.push_back(transfer.peer); };
  for (const Step& step : schedule.steps) {
    std::for_each(step.sends.begin(), step.sends.end(), add);
    std::for_each(step.receives.begin(), step.receives.end(), add);
  }
  std::sort(peers.begin(), peers.end());
  peers.erase(std::unique(peers.begin(), peers.end()), peers.end());
  return peers;
}

// Returns the algorithms that the user may ask for.
std::vector<Algorithm> algorithms_of_other(const Operation& op) {
  switch (op.collective) {
    case Collective::kBroadcast:
      return {Algorithm::kTree, Algorithm::kRing};
    case Collective::kReduce:
      if (op.reproducible) return {Algorithm::kDirect};
      if (!op.commutative) return {Algorithm::kTree, Algorithm::kDirect};
      return {Algorithm::kTree, Algorithm::kRing, Algorithm::kDirect};
    case Collective::kAllgather:
      return {Algorithm::kRing, Algorithm::kBruck, Algorithm::kDirect};
    case Collective::kReduceScatter:
      if (op.reproducible || !op.commutative) return {Algorithm::kDirect};
      return {Algorithm::kRing, Algorithm::kHalvingDoubling, Algorithm::kDirect};
    case Collective::kAlltoall:
      return {Algorithm::kBruck, Algorithm::kDirect, Algorithm::kPairwise};
    case Collective::kAlltoallv:
      return {Algorithm::kDirect, Algorithm::kPairwise};
    case Collective::kGather:
    case Collective::kScatter:
      return {Algorithm::kTree, Algorithm::kDirect};
    case Collective::kGatherv:
    case Collective::kScatterv:
      return {Algorithm::kDirect};
    case Collective::kAllreduce:
    case Collective::kBarrier:
      break;
  }
  return {};
}

// Returns the best schedule for a broadcast or a reduce.
ScheduleKind best_of_broadcast_or_reduce(int ranks, const Operation& op) {
  if (op.reproducible) return ScheduleKind::kDirect;
  const bool is_small = suits_tree(ranks, op.bytes());
  if (op.commutative) return is_small ? ScheduleKind::kTree : ScheduleKind::kChain;
  return is_small ? ScheduleKind::kOrderedTree : ScheduleKind::kDirect;
}

// Returns the best schedule for any collective but allreduce.
ScheduleKind best_of_other(int ranks, const Operation& op) {
  switch (op.collective) {
    case Collective::kAllreduce:  // HostsEngine::choose handles allreduces itself.
    case Collective::kBroadcast:
    case Collective::kReduce:
      break;
    case Collective::kBarrier:
      return ScheduleKind::kDissemination;
    case Collective::kAllgather:
      return suits_bruck(ranks, op.bytes()) ? ScheduleKind::kBruck : ScheduleKind::kRing;
    case Collective::kReduceScatter:
      return schedule_kind(
          best_reduce_scatter(ranks, op.bytes(), op.reproducible || !op.commutative));
    case Collective::kGather:
      return gather_suits_tree(ranks, op.bytes()) ? ScheduleKind::kTree : ScheduleKind::kDirect;
    case Collective::kScatter:
      return suits_tree(ranks, op.bytes()) ? ScheduleKind::kTree : ScheduleKind::kDirect;
    // Pairwise is not chosen: there a rank that is ahead sends to one that is still busy with
    // another.
    case Collective::kAlltoall:
      return suits_bruck_alltoall(ranks, op.bytes()) ? ScheduleKind::kBruck : ScheduleKind::kDirect;
    case Collective::kAlltoallv:
    case Collective::kGatherv:
    case Collective::kScatterv:
      return ScheduleKind::kDirect;
  }
  return best_of_broadcast_or_reduce(ranks, op);
}

// Returns the schedule that carries out the algorithm for this collective.
ScheduleKind kind_of_other(Algorithm asked, const Operation& op) {
  if (asked == Algorithm::kRing) return around_ring(op.collective);
  const bool is_ordered = op.collective == Collective::kReduce && !op.commutative;
  return is_ordered && asked == Algorithm::kTree ? ScheduleKind::kOrderedTree
                                                 : schedule_kind(asked);
}

absl::StatusOr<ScheduleKind> choose_other(Algorithm asked, int ranks, const Operation& op) {
  if (asked == Algorithm::kAuto) return best_of_other(ranks, op);
  const std::vector<Algorithm> its = algorithms_of_other(op);
  // Around a ring an empty operation sends nothing, so no rank would wait for another.
  const bool is_nothing = is_length_known(op.collective) && op.elements == 0;
  if (std::find(its.begin(), its.end(), asked) != its.end()) {
    return is_nothing ? best_of_other(ranks, op) : kind_of_other(asked, op);
  }
  const auto add_name = [](std::string* out, Algorithm each) { *out += algorithm_name(each); };
  return absl::InvalidArgumentError(absl::StrCat(
      "it cannot use the algorithm ", algorithm_name(asked), ", but only ",
      its.empty() ? "the one that it chooses itself" : absl::StrJoin(its, " or ", add_name),
      op.reproducible   ? ", if it is reproducible"
      : !op.commutative ? ", if it is not commutative"
                        : ""));
}

}  // namespace

absl::StatusOr<ScheduleKind> HostsEngine::choose(Algorithm asked, int ranks,
                                                 const Operation& operation) {
  if (operation.collective != Collective::kAllreduce) return choose_other(asked, ranks, operation);
  const bool over_tree = operation.reproducible || !operation.commutative;
  if (over_tree && asked != Algorithm::kAuto && !sums_over_tree(asked)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the algorithm ", algorithm_name(asked),
        " adds up in an order of its own, but the operation is ",
        operation.reproducible ? "reproducible" : "not commutative", "; choose ",
        algorithm_name(Algorithm::kRecursiveDoubling), ", ",
        algorithm_name(Algorithm::kHalvingDoubling), " or ", algorithm_name(Algorithm::kDirect)));
  }
  // Around a ring an empty operation makes no rank wait for any but its neighbours.
  const bool is_free = asked == Algorithm::kAuto || operation.elements == 0;
  return schedule_kind(is_free ? best_algorithm(ranks, operation.bytes(), over_tree) : asked);
}

const std::vector<int>& HostsEngine::known_peers(const Group& group, const Operation& operation,
                                                 ScheduleKind kind) const {
  return way(group, operation, kind).peers;
}

HostsEngine::Way HostsEngine::make_way(const Case& wanted, const Operation& operation) {
  Way way;
  if (wanted.size == 1) return way;
  if (is_around_ring(wanted.kind)) {
    way.peers = Ring::peers(wanted.rank, wanted.size);
  } else if (is_bruck_alltoall(operation, wanted.kind)) {
    way.peers = BruckAlltoall::peers(wanted.rank, wanted.size);
  } else {
    way.schedule = schedule_of(operation, wanted.kind, wanted.rank, wanted.size);
    way.peers = peers_of(way.schedule);
  }
  return way;
}

const HostsEngine::Way& HostsEngine::way(const Group& group, const Operation& operation,
                                         ScheduleKind kind) const {
  const Case wanted{operation.collective, operation.root, kind, group.rank, group.size};
  const auto known = ways_.find(wanted);
  if (known != ways_.end()) return known->second;
  if (ways_.size() == kMostWays) ways_.clear();
  return ways_.emplace(wanted, make_way(wanted, operation)).first->second;
}

absl::StatusOr<std::unique_ptr<Task>> HostsEngine::start(const Group& group, const Slice& slice,
                                                         const EnginePlan& plan, TaskOwner& owner) {
  if (group.size == 1) {
    auto task = std::make_unique<Alone>(slice.operation, owner);
    task->start(group);
    return task;
  }
  if (is_around_ring(plan.schedule)) {
    auto task = std::make_unique<Ring>(group, slice, owner);
    task->start(plan);
    return task;
  }
  if (is_bruck_alltoall(slice.operation, plan.schedule)) {
    auto task = std::make_unique<BruckAlltoall>(group, slice, owner);
    task->start(plan);
    return task;
  }
  auto task = std::make_unique<ScheduledTask>(way(group, slice.operation, plan.schedule).schedule,
                                              group, slice, owner);
  task->start(plan);
  return task;
}

}  // namespace nezha
