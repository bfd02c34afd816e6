// SPDX-License-Identifier: Apache-2.0
#include "context/engines.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "context/joining.h"
#include "context/rails.h"

namespace nezha {

void Engines::open_switch(const Group& group, flare::FlareEngineOwner& owner) {
  if (!setup_.switch_rail || setup_.size() == 1) return;
  const flare::FlareOptions& rail = *setup_.switch_rail;
  auto engine =
      flare::FlareEngine::open(setup_.progress(), rail, group, setup_.job, setup_.log, owner);
  if (!engine.ok()) {
    refuse_unless(setup_,
                  absl::Status(engine.status().code(),
                               absl::StrCat("rail 'flare:", rail.interface, "@", rail.manager.str(),
                                            "': ", engine.status().message())));
  }
  flare_ = *std::move(engine);
  add(kSwitchRail, *flare_);
}

void Engines::add_stats(std::vector<RailStats>& stats) const {
  if (flare_ == nullptr) return;
  const flare::SessionCounters& counters = flare_->counters();
  stats.push_back({kSwitchRail, counters.bytes_sent, counters.bytes_received, counters.resent,
                   flare_->failures(), 0, "", 0, 0, 0, "", 0});
}

std::vector<std::string> Engines::names() const {
  std::vector<std::string> names;
  for (const auto& [name, engine] : engines_) names.push_back(name);
  return names;
}

bool Engines::can_do(const Operation& operation) {
  return std::any_of(engines_.begin(), engines_.end(),
                     [&](const auto& entry) { return can_do(*entry.second, operation); });
}

bool Engines::can_do(const Engine& engine, const Operation& operation) {
  const absl::Status status = engine.supports(operation);
  if (!status.ok() && unsupported_.insert(std::string(status.message())).second) {
    setup_.log->info("the hosts carry out an operation without the switch: {}",
                     std::string(status.message()));
  }
  return status.ok();
}

int Engines::lane_of(const Engine& engine) const {
  const auto found = std::find_if(engines_.begin(), engines_.end(),
                                  [&](const auto& entry) { return entry.second == &engine; });
  return first_lane_ + static_cast<int>(found - engines_.begin());
}

Engine* Engines::of_lane(int lane) const {
  const auto index = static_cast<size_t>(lane - first_lane_);
  return index < engines_.size() ? engines_[index].second : nullptr;
}

}  // namespace nezha
