// SPDX-License-Identifier: Apache-2.0
#include "control/coordinator.h"

#include <algorithm>
#include <cstddef>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"

namespace nezha {

Coordinator::Coordinator(int ranks, LoadBalancer balancer, Broadcast broadcast)
    : balancer_(std::move(balancer)),
      timer_(ranks, static_cast<int>(balancer_.table().lanes.size())),
      plans_(ranks),
      recoveries_(ranks),
      broadcast_(std::move(broadcast)),
      all_live_(all_lanes(static_cast<int>(balancer_.table().lanes.size()))) {
  live_.assign(static_cast<size_t>(ranks), all_live_);
}

void Coordinator::saw(uint64_t bytes) {
  ++seen_[size_class_of(bytes)];
  auto change = balancer_.open(bytes);
  if (change) add(*std::move(change));
}

absl::Status Coordinator::on_lanes(int rank, LaneSet live) {
  live_[static_cast<size_t>(rank)] = live;
  LaneSet all = live;
  for (const LaneSet lanes : live_) all &= lanes;
  // If no lane works on all ranks, no allocation is better than another.
  if (all == 0 || all == all_live_) return absl::OkStatus();
  all_live_ = all;
  auto changes = balancer_.set_live(all);
  for (const auto& [size_class, entry] : balancer_.table().entries) set_window(size_class);
  add_all(std::move(changes));
  return absl::OkStatus();
}

absl::Status Coordinator::on_readings(int rank, absl::Span<const Reading> readings) {
  for (const Reading& reading : readings) {
    auto window = timer_.add(rank, reading);
    if (!window.ok()) return window.status();
    if (!window->has_value()) continue;
    const SizeClass size_class = (*window)->size_class;
    (*window)->since_last = std::exchange(seen_[size_class], 0);
    auto change = balancer_.on_window(**window);
    set_window(size_class);
    if (change) add(*std::move(change));
  }
  return absl::OkStatus();
}

absl::Status Coordinator::on_report(int rank, const control_message::Report& report) {
  auto keep = plans_.report(rank, report.plan, report.operations);
  if (!keep.ok()) return keep.status();
  if (!keep->has_value()) return absl::OkStatus();
  broadcast_(control_message::Commit{report.plan, engines(), std::exchange(pending_, {}),
                                     **std::move(keep)});
  return absl::OkStatus();
}

// Lost lanes are left out, too: until all ranks have answered a loss, the lane may still seem live.
LaneSet Coordinator::engines() const {
  LaneSet engines = 0;
  for (int lane = 0; lane < static_cast<int>(balancer_.table().lanes.size()); ++lane) {
    const bool is_live = std::all_of(live_.begin(), live_.end(),
                                     [&](LaneSet lanes) { return (lanes & lane_bit(lane)) != 0; });
    if (is_live && !recoveries_.is_lost(lane)) engines |= lane_bit(lane);
  }
  return engines;
}

absl::Status Coordinator::on_lost(int lane) {
  if (recoveries_.lose(lane)) freeze();
  return absl::OkStatus();
}

void Coordinator::freeze() {
  broadcast_(control_message::Freeze{recoveries_.epoch(), recoveries_.lane()});
}

absl::Status Coordinator::on_frozen(int rank, control_message::Frozen frozen) {
  auto repairs = recoveries_.report(rank, frozen.epoch, std::move(frozen.parts));
  if (!repairs.ok()) return repairs.status();
  if (!repairs->has_value()) return absl::OkStatus();
  broadcast_(control_message::Recover{frozen.epoch, **std::move(repairs)});
  if (recoveries_.next()) freeze();
  return absl::OkStatus();
}

void Coordinator::lose(int rank) {
  is_over_ = true;
  (void)on_report(rank, {plans_.plan(), {}});  // refused if no step waits for this report
}

absl::Status Coordinator::resume(const DataLengthTable& table) {
  auto changes = balancer_.resume(table);
  if (!changes.ok()) return changes.status();
  add_all(*std::move(changes));
  return absl::OkStatus();
}

void Coordinator::set_window(SizeClass size_class) {
  timer_.set_operations(size_class, balancer_.window_operations(size_class));
}

void Coordinator::add(AllocationChange change) {
  std::vector<AllocationChange> changes;
  changes.push_back(std::move(change));
  add_all(std::move(changes));
}

void Coordinator::add_all(std::vector<AllocationChange> changes) {
  for (AllocationChange& change : changes) {
    const SizeClass size_class = change.size_class;
    set_window(size_class);
    const auto earlier = std::find_if(pending_.begin(), pending_.end(), [&](const auto& other) {
      return other.size_class == size_class;
    });
    if (earlier == pending_.end()) {
      pending_.push_back(std::move(change));
    } else {
      *earlier = std::move(change);
    }
  }
  step();
}

void Coordinator::step() {
  if (is_over_ || pending_.empty() || plans_.is_stepping()) return;
  broadcast_(control_message::Prepare{plans_.begin()});
}

}  // namespace nezha
