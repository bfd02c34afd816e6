#include "control/load_balancer.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace nezha {

LoadBalancer::LoadBalancer(std::vector<std::string> lanes, std::unique_ptr<Policy> policy)
    : table_{std::move(lanes), {}}, policy_(std::move(policy)) {}

Allocation LoadBalancer::allocation(uint64_t bytes) const {
  const auto entry = nearest(table_.entries, size_class_of(bytes));
  if (entry != table_.entries.end()) return entry->second.allocation;
  return policy_->unlearned();
}

std::optional<AllocationChange> LoadBalancer::open(uint64_t bytes) {
  const SizeClass size_class = size_class_of(bytes);
  if (table_.entries.contains(size_class)) return std::nullopt;
  return follow(size_class, {policy_->open(size_class), Cause::kStart});
}

std::optional<AllocationChange> LoadBalancer::on_window(const Window& window) {
  const auto found = table_.entries.find(window.size_class);
  if (found == table_.entries.end()) return std::nullopt;
  TableEntry& entry = found->second;
  const bool has_ran = (took_part(window) & lanes_of(entry.allocation)) != 0;
  if (window.allocation != entry.number || !has_ran) return std::nullopt;
  ++entry.windows;
  entry.bytes = window.bytes;
  entry.ran_by = entry.allocation;
  entry.times.clear();
  for (const LaneTime& lane : window.lanes) entry.times.push_back(lane.mean);
  auto decision = policy_->on_window(window, entry.allocation);
  if (decision) return follow(window.size_class, *std::move(decision));
  entry.state = policy_->state(window.size_class);
  return std::nullopt;
}

std::vector<AllocationChange> LoadBalancer::set_live(LaneSet live) {
  policy_->set_live(live);
  std::vector<AllocationChange> changes;
  for (const auto& [size_class, entry] : table_.entries) {
    auto change =
        follow(size_class, {policy_->on_lanes(size_class, entry.allocation), Cause::kLanes});
    if (change) changes.push_back(*std::move(change));
  }
  return changes;
}

absl::StatusOr<std::vector<AllocationChange>> LoadBalancer::resume(const DataLengthTable& table) {
  if (table.lanes != table_.lanes) {
    return absl::FailedPreconditionError(
        absl::StrCat("the data length table is of other lanes (", absl::StrJoin(table.lanes, ", "),
                     ") than this context's (", absl::StrJoin(table_.lanes, ", "), ")"));
  }
  for (const auto& [size_class, saved] : table.entries) {
    for (const Allocation& allocation : {saved.allocation, saved.ran_by}) {
      if (policy_->is_possible(lanes_of(allocation))) continue;
      return absl::FailedPreconditionError(
          absl::StrCat("the data length table divides messages of class ", size_class, " as ",
                       to_string(allocation), ": a lane that carries whole messages has a part"));
    }
  }
  std::vector<AllocationChange> changes;
  for (const auto& [size_class, saved] : table.entries) {
    if (saved.windows == 0) continue;
    TableEntry& entry = table_.entries[size_class];
    entry = saved;
    entry.number = 1;
    const bool was_probe = !saved.history.empty() && saved.history.back().cause == Cause::kProbe;
    if (was_probe) entry.allocation = saved.ran_by;
    Window last{size_class, saved.bytes, 0, {}, Timer::kOperations};
    for (const Nanos time : saved.times) last.lanes.push_back({time, 0});
    policy_->resume(last, saved.ran_by, saved.state);
    if ((lanes_of(entry.allocation) & ~policy_->live()) != 0) {
      follow(size_class, {policy_->on_lanes(size_class, entry.allocation), Cause::kLanes});
    }
    changes.push_back({size_class, entry.number, entry.allocation});
  }
  return changes;
}

std::optional<AllocationChange> LoadBalancer::follow(SizeClass size_class, Decision decision) {
  TableEntry& entry = table_.entries[size_class];
  entry.state = policy_->state(size_class);
  if (decision.allocation == entry.allocation) {  // what was a probe is adopted, say
    entry.record(decision.cause);
    return std::nullopt;
  }
  entry.change(std::move(decision.allocation), decision.cause);
  return AllocationChange{size_class, entry.number, entry.allocation};
}

}  // namespace nezha
