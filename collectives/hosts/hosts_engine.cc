#include "collectives/hosts/hosts_engine.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "collectives/hosts/bcube.h"
#include "collectives/hosts/choice.h"
#include "collectives/hosts/direct.h"
#include "collectives/hosts/dissemination.h"
#include "collectives/hosts/halving_doubling.h"
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
  Alone(const Operation& op, TaskOwner& owner) : Task(owner), op_(op) {}
  void start() {
    if (op_.output != nullptr && op_.input != op_.output && op_.bytes() > 0) {
      std::memcpy(op_.output, op_.input, op_.bytes());
    }
    finish(State::kDone);
  }
  std::string describe() const override { return "alone: complete"; }

 private:
  void detach() override {}
  Operation op_;
};

// Of any algorithm but the ring.
Schedule schedule_of(const Operation& op, Algorithm algorithm, int rank, int size) {
  if (op.collective == Collective::kBarrier) return dissemination(rank, size);
  if (op.collective == Collective::kBroadcast) return tree_broadcast(rank, op.root, size);
  if (op.collective == Collective::kReduce) {
    if (algorithm == Algorithm::kDirect) return direct_reduce(rank, op.root, size);
    return algorithm == kTree ? tree_reduce(rank, op.root, size)
                              : ordered_tree_reduce(rank, op.root, size);
  }
  switch (algorithm) {
    case Algorithm::kHalvingDoubling:
      return halving_doubling(rank, size);
    case Algorithm::kDirect:
      return direct(rank, size);
    case Algorithm::kBcube:
      return bcube(rank, size);
    default:
      return recursive_doubling(rank, size);
  }
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

// Of a collective but allreduce.
Algorithm algorithm_of_other(int ranks, const Operation& op) {
  if (op.collective == Collective::kBarrier) return kDissemination;
  const bool is_small = suits_tree(ranks, op.bytes());
  if (op.commutative) return is_small ? kTree : Algorithm::kRing;
  return is_small ? kOrderedTree : Algorithm::kDirect;
}

}  // namespace

absl::StatusOr<Algorithm> HostsEngine::choose(Algorithm asked, int ranks,
                                              const Operation& operation) {
  if (operation.collective != Collective::kAllreduce) return algorithm_of_other(ranks, operation);
  const bool over_tree = operation.reproducible || !operation.commutative;
  if (over_tree && asked != Algorithm::kAuto && !sums_over_tree(asked)) {
    return absl::InvalidArgumentError(absl::StrCat(
        algorithm_name(asked), " has an order of summation of its own, and the operation is ",
        operation.reproducible ? "reproducible" : "not commutative", ", which takes ",
        algorithm_name(Algorithm::kRecursiveDoubling), ", ",
        algorithm_name(Algorithm::kHalvingDoubling), " or ", algorithm_name(Algorithm::kDirect)));
  }
  // Around a ring of nothing no rank would wait for any but its neighbours.
  const bool is_free = asked == Algorithm::kAuto || operation.elements == 0;
  return is_free ? best_algorithm(ranks, operation.bytes(), over_tree) : asked;
}

std::vector<int> HostsEngine::peers(const Group& group, const Operation& operation,
                                    const EnginePlan& plan) const {
  if (group.size == 1) return {};
  if (plan.algorithm == Algorithm::kRing) return Ring::peers(group.rank, group.size);
  return peers_of(schedule(group, operation, plan.algorithm));
}

const Schedule& HostsEngine::schedule(const Group& group, const Operation& operation,
                                      Algorithm algorithm) const {
  const Case wanted{operation.collective, operation.root, algorithm, group.rank, group.size};
  if (case_ != wanted) {
    schedule_ = schedule_of(operation, algorithm, group.rank, group.size);
    case_ = wanted;
  }
  return schedule_;
}

absl::StatusOr<std::unique_ptr<Task>> HostsEngine::start(const Group& group, const Slice& slice,
                                                         const EnginePlan& plan, TaskOwner& owner) {
  if (group.size == 1) {
    auto task = std::make_unique<Alone>(slice.operation, owner);
    task->start();
    return task;
  }
  if (plan.algorithm == Algorithm::kRing) {
    auto task = std::make_unique<Ring>(group, slice, owner);
    task->start(plan);
    return task;
  }
  auto task = std::make_unique<ScheduledTask>(schedule(group, slice.operation, plan.algorithm),
                                              group, slice, owner);
  task->start(plan);
  return task;
}

}  // namespace nezha
