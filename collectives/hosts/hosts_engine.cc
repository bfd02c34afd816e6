#include "collectives/hosts/hosts_engine.h"

#include <cstring>

#include "absl/strings/str_cat.h"
#include "collectives/hosts/recursive_doubling.h"
#include "collectives/hosts/ring.h"

namespace nezha {
namespace {

// A group of one: the result is the input.
class Alone final : public Task {
 public:
  Alone(const Operation& op, TaskOwner& owner) : Task(owner), op_(op) {}
  void start() {
    if (op_.input != op_.output && op_.bytes() > 0) {
      std::memcpy(op_.output, op_.input, op_.bytes());
    }
    finish(State::kDone);
  }
  std::string describe() const override { return "alone: complete"; }

 private:
  void detach() override {}
  Operation op_;
};

}  // namespace

Algorithm HostsEngine::choose(int ranks, size_t bytes) {
  // With two ranks both move the same bytes; the ring's are in segments.
  const size_t limit = ranks == 2 ? size_t{64} << 10 : size_t{16} << 10;
  return bytes <= limit ? Algorithm::kRecursiveDoubling : Algorithm::kRing;
}

std::vector<int> HostsEngine::peers(const Group& group, const EnginePlan& plan) const {
  if (group.size == 1) return {};
  if (plan.algorithm == Algorithm::kRecursiveDoubling) {
    return RecursiveDoubling::peers(group.rank, group.size);
  }
  return {(group.rank + 1) % group.size, (group.rank + group.size - 1) % group.size};
}

absl::StatusOr<std::unique_ptr<Task>> HostsEngine::start(const Group& group, const Slice& slice,
                                                         const EnginePlan& plan, TaskOwner& owner) {
  if (group.size == 1) {
    auto task = std::make_unique<Alone>(slice.operation, owner);
    task->start();
    return task;
  }
  for (const int peer : peers(group, plan)) {
    const Channel* channel = group.channels[static_cast<size_t>(peer)];
    if (channel->failed()) return channel->failure();
  }
  if (plan.algorithm == Algorithm::kRecursiveDoubling) {
    auto task = std::make_unique<RecursiveDoubling>(group, slice, owner);
    task->start(plan);
    return task;
  }
  auto task = std::make_unique<Ring>(group, slice, owner);
  task->start(plan);
  return task;
}

}  // namespace nezha
