// SPDX-License-Identifier: Apache-2.0
#include "control/load_balancer.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "control/split_choice.h"

namespace nezha {

LoadBalancer::LoadBalancer(std::vector<std::string> lanes, std::unique_ptr<Policy> policy,
                           std::vector<Way> others)
    : table_{std::move(lanes), {}}, ways_(std::move(others)) {
  ways_.insert(ways_.begin(), Way{[](SizeClass) { return Algorithm::kAuto; }, std::move(policy)});
}

Allocation LoadBalancer::allocation(uint64_t bytes) const {
  const auto entry = nearest(table_.entries, size_class_of(bytes));
  if (entry != table_.entries.end()) return entry->second.allocation;
  return ways_.front().policy->unlearned();
}

std::optional<AllocationChange> LoadBalancer::open(uint64_t bytes) {
  const SizeClass size_class = size_class_of(bytes);
  if (table_.entries.contains(size_class)) return std::nullopt;
  return follow(size_class, {ways_.front().policy->open(size_class), Cause::kStart});
}

std::optional<AllocationChange> LoadBalancer::on_window(const Window& window) {
  const SizeClass size_class = window.size_class;
  const auto found = table_.entries.find(size_class);
  if (found == table_.entries.end()) return std::nullopt;
  TableEntry& entry = found->second;
  window_ = &window;
  const absl::Cleanup is_over = [this] { window_ = nullptr; };
  if (window.operations == 0 && window.allocation == entry.number) return on_silence(size_class);
  const bool has_ran = (took_part(window) & lanes_of(entry.allocation)) != 0;
  if (window.allocation != entry.number || !has_ran) return std::nullopt;
  entry.saw(window);
  return on_own_window(window, entry);
}

// One by the allocation that its class has.
std::optional<AllocationChange> LoadBalancer::on_own_window(const Window& window,
                                                            TableEntry& entry) {
  const SizeClass size_class = window.size_class;
  WayTrial& trial = trial_of(size_class);
  if (trial.is_under_way()) return on_trial(window);
  if (auto decision = policy(entry).on_window(window, entry.allocation)) {
    // A little more for a lane, and back, is as before; and may follow each other closely for long.
    const bool is_as_before =
        decision->cause == Cause::kRebalance || decision->cause == Cause::kReturn;
    if (!is_as_before) trial.interrupt();
    if (decision->cause == Cause::kDrift) {
      trial.hurry();
      forget_divisions(size_class);
    }
    return follow(size_class, *std::move(decision));
  }
  const bool was_settled = is_settled(entry.state);
  entry.state = policy(entry).state(size_class);
  if (!was_settled && is_settled(entry.state)) {
    log_.settled(table_.lanes, size_class, entry, window);
  }
  if (is_settled(entry.state) && trial.is_due(window)) return begin_trial(size_class);
  return std::nullopt;
}

std::vector<AllocationChange> LoadBalancer::set_live(LaneSet live) {
  for (const Way& way : ways_) way.policy->set_live(live);
  log_.live(table_.lanes, live);
  std::vector<AllocationChange> changes;
  for (auto& [size_class, entry] : table_.entries) {
    WayTrial& trial = trial_of(size_class);
    const TableEntry& home = trial.is_under_way() ? trial.home() : entry;
    entry.way = home.way;
    Decision decision{policy(home).on_lanes(size_class, home.allocation), Cause::kLanes, "",
                      home.algorithm};
    trial.interrupt();
    trial.hurry();
    forget_divisions(size_class);
    if (home.way != 0) {
      trials_of(size_class).by[0] = ways_[0].policy->on_lanes(size_class, home.allocation);
    }
    auto change = follow(size_class, std::move(decision));
    if (change) changes.push_back(*std::move(change));
  }
  return changes;
}

int LoadBalancer::window_operations(SizeClass size_class) const {
  const auto trials = trials_.find(size_class);
  if (trials != trials_.end() && trials->second.trial.is_under_way()) {
    return trials->second.trial.window_operations();
  }
  const auto entry = table_.entries.find(size_class);
  const size_t way = entry == table_.entries.end() ? 0 : entry->second.way;
  return ways_[way].policy->window_operations(size_class);
}

// ---- Ways --------------------------------------------------------------------------------------

LoadBalancer::Trials& LoadBalancer::trials_of(SizeClass size_class) {
  const std::vector<std::optional<Allocation>> none(ways_.size());
  return trials_.try_emplace(size_class, Trials{WayTrial(), 0, none}).first->second;
}

void LoadBalancer::forget_divisions(SizeClass size_class) {
  trials_of(size_class).by.assign(ways_.size(), std::nullopt);
}

// What messages of the class are to have that way: as they are divided now, or were when the class
// left that way or, failing that, another one.
Allocation LoadBalancer::allocation_by(size_t way, SizeClass size_class) const {
  if (auto only = ways_[way].policy->only()) return *only;
  const TableEntry& entry = table_.entries.at(size_class);
  const auto& by = trials_.at(size_class).by;
  if (!policy(entry).only()) return entry.allocation;
  if (by[way]) return *by[way];
  const auto known = std::find_if(by.begin(), by.end(), [](const auto& it) { return it; });
  return known == by.end() ? entry.allocation : **known;
}

// Whether messages of the class may go that way, and it is another one than theirs; or was theirs,
// and has another lane by now.
bool LoadBalancer::is_another(size_t way, SizeClass size_class) const {
  const TableEntry& entry = table_.entries.at(size_class);
  const auto algorithm = ways_[way].algorithm(size_class);
  return algorithm.has_value() &&
         (algorithm != entry.algorithm || allocation_by(way, size_class) != entry.allocation);
}

// Whether one before it comes to the same.
bool LoadBalancer::is_twice(size_t way, SizeClass size_class) const {
  for (size_t other = 0; other < way; ++other) {
    if (is_another(other, size_class) &&
        ways_[way].algorithm(size_class) == ways_[other].algorithm(size_class) &&
        allocation_by(way, size_class) == allocation_by(other, size_class)) {
      return true;
    }
  }
  return false;
}

std::optional<AllocationChange> LoadBalancer::begin_trial(SizeClass size_class) {
  TableEntry& entry = table_.entries.at(size_class);
  Trials& trials = trials_of(size_class);
  std::vector<size_t> others;  // the one after that of the last trial first
  for (size_t step = 1; step <= ways_.size(); ++step) {
    const size_t way = (trials.tried + step) % ways_.size();
    if (is_another(way, size_class) && !is_twice(way, size_class)) others.push_back(way);
  }
  if (others.empty()) return std::nullopt;
  trials.trial.begin(entry, static_cast<int>(others.size()));
  trials.tried = others.front();
  const Allocation allocation = allocation_by(trials.tried, size_class);
  if (!policy(entry).only()) trials.by[entry.way] = entry.allocation;
  entry.way = trials.tried;
  return follow(size_class,
                {allocation, Cause::kProbe, "another algorithm, or messages by turns, is tried",
                 ways_[entry.way].algorithm(size_class)});
}

std::optional<AllocationChange> LoadBalancer::on_trial(const Window& window) {
  const SizeClass size_class = window.size_class;
  WayTrial& trial = trial_of(size_class);
  const auto verdict = trial.look_at(window);
  if (verdict == WayTrial::Verdict::kOpen) return std::nullopt;
  TableEntry& entry = table_.entries.at(size_class);
  if (verdict == WayTrial::Verdict::kLost) {
    return go_home(size_class, "the other algorithm, or messages by turns, is no faster");
  }
  const bool is_one = std::has_single_bit(lanes_of(entry.allocation));
  policy(entry).resume(window, entry.allocation,
                       is_one ? ClassState::kCold : ClassState::kConverged);
  if (const LaneModel* usual = ways_.front().policy->model(); usual != nullptr && entry.way != 0) {
    policy(entry).assume(window, entry.allocation, *usual);
  }
  entry.keep(window);
  return follow(size_class, {entry.allocation, Cause::kWay});
}

// From a trial that is over.
std::optional<AllocationChange> LoadBalancer::go_home(SizeClass size_class, absl::string_view why) {
  const TableEntry& home = trial_of(size_class).home();
  table_.entries.at(size_class).way = home.way;
  return follow(size_class, {home.allocation, Cause::kReturn, why, home.algorithm});
}

std::optional<AllocationChange> LoadBalancer::on_silence(SizeClass size_class) {
  WayTrial& trial = trial_of(size_class);
  if (trial.is_under_way()) {
    trial.interrupt();
    return go_home(size_class, "operations overlap, and nothing can be measured");
  }
  const TableEntry& entry = table_.entries.at(size_class);
  const auto allocation = policy(entry).on_silence(size_class);
  if (!allocation || *allocation == entry.allocation) return std::nullopt;
  return follow(size_class,
                {*allocation, Cause::kReturn, "operations overlap, and nothing can be measured"});
}

DataLengthTable LoadBalancer::learned() const {
  DataLengthTable table = table_;
  for (const auto& [size_class, trials] : trials_) {
    if (trials.trial.is_under_way()) table.entries.at(size_class) = trials.trial.home();
  }
  return table;
}

// ------------------------------------------------------------------------------------------------

absl::StatusOr<std::vector<AllocationChange>> LoadBalancer::resume(const DataLengthTable& table) {
  if (table.lanes != table_.lanes) {
    return absl::FailedPreconditionError(
        absl::StrCat("the data length table belongs to other rails, or to another plan or policy (",
                     absl::StrJoin(table.lanes, ", "), ") than this context's (",
                     absl::StrJoin(table_.lanes, ", "), ")"));
  }
  for (const auto& [size_class, saved] : table.entries) {
    for (const Allocation& allocation : {saved.allocation, saved.ran_by}) {
      if (ways_.front().policy->is_possible(lanes_of(allocation))) continue;
      return absl::FailedPreconditionError(
          absl::StrCat("the data length table divides messages of class ", size_class, " as ",
                       to_string(allocation), ": a lane that carries whole messages has a part"));
    }
  }
  std::vector<AllocationChange> changes;
  for (const auto& [size_class, saved] : table.entries) {
    TableEntry before = saved;
    if (saved.is_probed()) {
      before.allocation = saved.ran_by;
      before.record(Cause::kReturn);
    }
    const auto way = way_of(size_class, before);
    if (saved.windows == 0 || !way) continue;
    TableEntry& entry = table_.entries[size_class] = before;
    entry.way = *way;
    entry.number = 1;
    log_.decided(
        table_.lanes, size_class, {},
        {entry.allocation, Cause::kStart, "an earlier run has left it so", entry.algorithm},
        nullptr);
    Policy& policy = this->policy(entry);
    if (policy.only()) {
      const Policy& first = *ways_[0].policy;
      Allocation by_first = ways_[0].policy->open(size_class);
      if (by_first == entry.allocation && first.sharing() != 0) {  // that is to be no other way
        by_first = all_on(std::countr_zero(first.sharing()), first.lanes());
      }
      trials_of(size_class).by[0] = by_first;
    }
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

// By which way the class had come to that. By turns it takes it up where it was settled: what is
// still searched for is the policy's that divides messages, as is what one rail carries alone.
std::optional<size_t> LoadBalancer::way_of(SizeClass size_class, const TableEntry& entry) const {
  std::optional<size_t> found;
  for (size_t way = 0; way < ways_.size(); ++way) {
    if (ways_[way].algorithm(size_class) != entry.algorithm) continue;
    const Policy& policy = *ways_[way].policy;
    const auto only = policy.only();
    const bool is_it = only && *only == entry.allocation && is_settled(entry.state);
    const bool is_sharing = (lanes_of(entry.allocation) & policy.alone()) == 0;
    if ((is_it && !(found && is_sharing)) || (!only && !found)) found = way;
  }
  return found;
}

std::optional<AllocationChange> LoadBalancer::follow(SizeClass size_class, Decision decision) {
  TableEntry& entry = table_.entries[size_class];
  log_.decided(table_.lanes, size_class, entry, decision, window_);
  const Algorithm before = entry.algorithm;
  entry.algorithm = decision.algorithm.value_or(before);
  entry.state = policy(entry).state(size_class);
  if (decision.allocation == entry.allocation && entry.algorithm == before) {
    if (decision.cause != Cause::kProbe) entry.record(decision.cause);  // a probe's is adopted, say
    return std::nullopt;
  }
  // Longer messages have more to find out, by trials that are so many windows apart.
  const bool is_return = decision.cause == Cause::kReturn && entry.is_probed() &&
                         is_settled(entry.state) && size_class < SplitChoice::kShort;
  entry.change(std::move(decision.allocation), decision.cause);
  return AllocationChange{size_class, entry.number, entry.allocation, entry.algorithm, is_return};
}

}  // namespace nezha
