#include "control/load_balancer.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace nezha {

LoadBalancer::LoadBalancer(std::vector<std::string> lanes, std::unique_ptr<Policy> policy,
                           Rival rival)
    : table_{std::move(lanes), {}}, policy_(std::move(policy)), rival_(std::move(rival)) {}

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
  const SizeClass size_class = window.size_class;
  const auto found = table_.entries.find(size_class);
  if (found == table_.entries.end()) return std::nullopt;
  TableEntry& entry = found->second;
  const bool has_ran = (took_part(window) & lanes_of(entry.allocation)) != 0;
  if (window.allocation != entry.number || !has_ran) return std::nullopt;
  ++entry.windows;
  entry.bytes = window.bytes;
  entry.ran_by = entry.allocation;
  entry.times.clear();
  for (const LaneTime& lane : window.lanes) entry.times.push_back(lane.mean);
  AlgorithmTrial& trial = trial_of(size_class);
  if (trial.is_under_way()) return on_trial(window);
  Policy& policy = policy_by(entry.algorithm);
  if (auto decision = policy.on_window(window, entry.allocation)) {
    trial.interrupt();
    if (decision->cause == Cause::kDrift) trial.hurry();
    return follow(size_class, *std::move(decision));
  }
  entry.state = policy.state(size_class);
  if (is_settled(entry.state) && trial.is_due(window)) return begin_trial(size_class);
  return std::nullopt;
}

std::vector<AllocationChange> LoadBalancer::set_live(LaneSet live) {
  policy_->set_live(live);
  if (rival_.policy != nullptr) rival_.policy->set_live(live);
  std::vector<AllocationChange> changes;
  for (const auto& [size_class, entry] : table_.entries) {
    AlgorithmTrial& trial = trial_of(size_class);
    const TableEntry& home = trial.is_under_way() ? trial.home() : entry;
    const Algorithm algorithm = home.algorithm;
    Decision decision{policy_by(algorithm).on_lanes(size_class, home.allocation), Cause::kLanes,
                      algorithm};
    trial.interrupt();
    trial.hurry();
    auto change = follow(size_class, std::move(decision));
    if (change) changes.push_back(*std::move(change));
  }
  return changes;
}

int LoadBalancer::window_operations(SizeClass size_class) const {
  const auto trial = trials_.find(size_class);
  if (trial != trials_.end() && trial->second.is_under_way()) {
    return trial->second.window_operations();
  }
  const auto entry = table_.entries.find(size_class);
  const bool is_open = entry != table_.entries.end();
  return policy_by(is_open ? entry->second.algorithm : Algorithm::kAuto)
      .window_operations(size_class);
}

// ---- Algorithms --------------------------------------------------------------------------------

Policy& LoadBalancer::policy_by(Algorithm algorithm) const {
  return algorithm == Algorithm::kAuto || rival_.policy == nullptr ? *policy_ : *rival_.policy;
}

Algorithm LoadBalancer::rival(SizeClass size_class) const {
  return rival_.algorithm == nullptr ? Algorithm::kAuto : rival_.algorithm(size_class);
}

AlgorithmTrial& LoadBalancer::trial_of(SizeClass size_class) {
  return trials_.try_emplace(size_class, static_cast<int>(table_.lanes.size())).first->second;
}

std::optional<AllocationChange> LoadBalancer::begin_trial(SizeClass size_class) {
  const TableEntry& entry = table_.entries.at(size_class);
  const bool is_rival = entry.algorithm != Algorithm::kAuto;
  const Algorithm tried = is_rival ? Algorithm::kAuto : rival(size_class);
  if (tried == entry.algorithm) return std::nullopt;
  trial_of(size_class).begin(entry);
  return follow(size_class, {entry.allocation, Cause::kProbe, tried});
}

std::optional<AllocationChange> LoadBalancer::on_trial(const Window& window) {
  const SizeClass size_class = window.size_class;
  AlgorithmTrial& trial = trial_of(size_class);
  const auto verdict = trial.look_at(window);
  if (verdict == AlgorithmTrial::Verdict::kOpen) return std::nullopt;
  if (verdict == AlgorithmTrial::Verdict::kLost) {
    return follow(size_class, {trial.home().allocation, Cause::kReturn, trial.home().algorithm});
  }
  TableEntry& entry = table_.entries.at(size_class);
  policy_by(entry.algorithm).resume(window, entry.allocation, trial.home().state);
  return follow(size_class, {entry.allocation, Cause::kAlgorithm});
}

DataLengthTable LoadBalancer::learned() const {
  DataLengthTable table = table_;
  for (const auto& [size_class, trial] : trials_) {
    if (trial.is_under_way()) table.entries.at(size_class) = trial.home();
  }
  return table;
}

// ------------------------------------------------------------------------------------------------

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
    const bool is_known =
        saved.algorithm == Algorithm::kAuto || saved.algorithm == rival(size_class);
    if (saved.windows == 0 || !is_known) continue;
    TableEntry& entry = table_.entries[size_class];
    entry = saved;
    Policy& policy = policy_by(entry.algorithm);
    entry.number = 1;
    const bool was_probe = !saved.history.empty() && saved.history.back().cause == Cause::kProbe;
    if (was_probe) entry.allocation = saved.ran_by;
    Window last{size_class, saved.bytes, 0, {}, Timer::kOperations};
    for (const Nanos time : saved.times) last.lanes.push_back({time, 0});
    policy.resume(last, saved.ran_by, saved.state);
    if ((lanes_of(entry.allocation) & ~policy.live()) != 0) {
      follow(size_class, {policy.on_lanes(size_class, entry.allocation), Cause::kLanes});
    }
    changes.push_back({size_class, entry.number, entry.allocation, entry.algorithm});
  }
  return changes;
}

std::optional<AllocationChange> LoadBalancer::follow(SizeClass size_class, Decision decision) {
  TableEntry& entry = table_.entries[size_class];
  const Algorithm before = entry.algorithm;
  entry.algorithm = decision.algorithm.value_or(before);
  entry.state = policy_by(entry.algorithm).state(size_class);
  if (decision.allocation == entry.allocation && entry.algorithm == before) {
    entry.record(decision.cause);  // what was a probe is adopted, say
    return std::nullopt;
  }
  entry.change(std::move(decision.allocation), decision.cause);
  return AllocationChange{size_class, entry.number, entry.allocation, entry.algorithm};
}

}  // namespace nezha
