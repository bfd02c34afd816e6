// SPDX-License-Identifier: Apache-2.0
#include "control/load_balancer.h"

#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace nezha {

LoadBalancer::LoadBalancer(std::vector<std::string> lanes, std::unique_ptr<Policy> policy)
    : table_{std::move(lanes), {}}, policy_(std::move(policy)) {}

Allocation LoadBalancer::allocation(uint64_t bytes) const {
  const auto entry = nearest(table_.entries, size_class_of(bytes));
  return entry == table_.entries.end() ? policy_->unlearned() : entry->second.allocation;
}

std::optional<AllocationChange> LoadBalancer::open(uint64_t bytes) {
  const SizeClass size_class = size_class_of(bytes);
  if (table_.entries.contains(size_class)) return std::nullopt;
  return follow(size_class, {policy_->open(size_class), Cause::kStart});
}

std::optional<AllocationChange> LoadBalancer::on_window(const Window& window) {
  const SizeClass size_class = window.size_class;
  const auto found = table_.entries.find(size_class);
  if (found == table_.entries.end() || window.allocation != found->second.number) {
    return std::nullopt;
  }
  TableEntry& entry = found->second;
  window_ = &window;
  const absl::Cleanup is_over = [this] { window_ = nullptr; };
  if (window.operations == 0) return on_silence(size_class);
  if ((took_part(window) & lanes_of(entry.allocation)) == 0) return std::nullopt;
  entry.saw(window);
  if (auto decision = policy_->on_window(window, entry.allocation)) {
    const bool is_adopted = entry.is_probed() && decision->allocation == entry.allocation &&
                            decision->cause != Cause::kProbe;
    if (is_adopted) entry.keep(window);
    return follow(size_class, *std::move(decision));
  }
  const bool was_settled = is_settled(entry.state);
  entry.state = policy_->state(size_class);
  if (!was_settled && is_settled(entry.state)) {
    log_.settled(table_.lanes, size_class, entry, window);
  }
  return std::nullopt;
}

// Returns the class's entry as it is apart from a probe that is under way.
const TableEntry& LoadBalancer::home(SizeClass size_class) const {
  const auto probed = homes_.find(size_class);
  return probed != homes_.end() ? probed->second : table_.entries.at(size_class);
}

std::optional<AllocationChange> LoadBalancer::on_silence(SizeClass size_class) {
  const auto allocation = policy_->on_silence(size_class);
  const TableEntry& entry = table_.entries.at(size_class);
  const Algorithm algorithm = home(size_class).algorithm;
  if (!allocation || (*allocation == entry.allocation && algorithm == entry.algorithm)) {
    return std::nullopt;
  }
  return follow(size_class, {*allocation, Cause::kReturn,
                             "operations overlap, and nothing can be measured", algorithm});
}

std::vector<AllocationChange> LoadBalancer::set_live(LaneSet live) {
  policy_->set_live(live);
  log_.live(table_.lanes, live);
  std::vector<AllocationChange> changes;
  for (const auto& [size_class, entry] : table_.entries) {
    const TableEntry home = this->home(size_class);
    auto change = follow(size_class, {policy_->on_lanes(size_class, home.allocation), Cause::kLanes,
                                      "", home.algorithm});
    if (change) changes.push_back(*std::move(change));
  }
  return changes;
}

DataLengthTable LoadBalancer::learned() const {
  DataLengthTable table = table_;
  for (const auto& [size_class, home] : homes_) table.entries.at(size_class) = home;
  return table;
}

std::optional<AllocationChange> LoadBalancer::follow(SizeClass size_class, Decision decision) {
  TableEntry& entry = table_.entries[size_class];
  log_.decided(table_.lanes, size_class, entry, decision, window_);
  const bool was_probed = entry.is_probed();
  if (decision.cause != Cause::kProbe)
    homes_.erase(size_class);
  else if (!was_probed)
    homes_.insert_or_assign(size_class, entry);
  const Algorithm before = entry.algorithm;
  entry.algorithm = decision.algorithm.value_or(before);
  entry.state = policy_->state(size_class);
  if (decision.allocation == entry.allocation && entry.algorithm == before) {
    // The allocation may be that of a probe, which the class adopts now.
    if (decision.cause != Cause::kProbe) entry.record(decision.cause);
    return std::nullopt;
  }
  entry.change(std::move(decision.allocation), decision.cause);
  const bool is_return = decision.cause == Cause::kReturn && was_probed;
  return AllocationChange{size_class, entry.number, entry.allocation, entry.algorithm, is_return};
}

// ---- From an earlier run -----------------------------------------------------------------------

absl::StatusOr<std::vector<AllocationChange>> LoadBalancer::resume(const DataLengthTable& table) {
  if (absl::Status status = check(table); !status.ok()) return status;
  std::vector<AllocationChange> changes;
  for (const auto& [size_class, saved] : table.entries) {
    if (saved.windows == 0 || !policy_->may_use(size_class, saved.algorithm)) continue;
    resume(size_class, saved);
    const TableEntry& entry = table_.entries.at(size_class);
    changes.push_back({size_class, entry.number, entry.allocation, entry.algorithm});
  }
  return changes;
}

void LoadBalancer::resume(SizeClass size_class, TableEntry saved) {
  if (saved.is_probed()) {
    saved.allocation = saved.ran_by;
    saved.record(Cause::kReturn);
  }
  TableEntry& entry = table_.entries[size_class] = std::move(saved);
  entry.number = 1;
  log_.decided(table_.lanes, size_class, {},
               {entry.allocation, Cause::kStart, "an earlier run has left it so", entry.algorithm},
               nullptr);
  Window last{size_class, entry.bytes, 0, {}, Timer::kOperations};
  for (const Nanos time : entry.times) last.lanes.push_back({time, 0});
  policy_->resume(last, {entry.algorithm, entry.ran_by}, entry.state);
  if ((lanes_of(entry.allocation) & ~policy_->live()) != 0) {
    follow(size_class, {policy_->on_lanes(size_class, entry.allocation), Cause::kLanes});
  }
}

absl::Status LoadBalancer::check(const DataLengthTable& table) const {
  if (table.lanes != table_.lanes) {
    return absl::FailedPreconditionError(
        absl::StrCat("the data length table belongs to other rails, or to another plan or policy (",
                     absl::StrJoin(table.lanes, ", "), ") than this context's (",
                     absl::StrJoin(table_.lanes, ", "), ")"));
  }
  for (const auto& [size_class, saved] : table.entries) {
    for (const Allocation& allocation : {saved.allocation, saved.ran_by}) {
      if (policy_->is_possible(lanes_of(allocation))) continue;
      return absl::FailedPreconditionError(
          absl::StrCat("the data length table divides messages of class ", size_class, " as ",
                       to_string(allocation), ": a lane that carries whole messages has a part"));
    }
  }
  return absl::OkStatus();
}

}  // namespace nezha
