// SPDX-License-Identifier: Apache-2.0
#include "context/announcement.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "context/rails.h"
#include "context/settings.h"
#include "nezha/version.h"
#include "rails/nic_probe.h"

namespace nezha {
namespace {

std::string rate_of(const std::string& interface) {
  const int speed = wire_speed_of(interface);
  return speed > 0 ? absl::StrCat(speed, " Mbit/s") : "unknown rate";
}

}  // namespace

void announce(const Setup& setup, const CoreShare& share) {
  if (!setup.log->should_log(spdlog::level::info)) return;
  Progress::Guard guard(setup.progress());
  std::vector<std::string> names;
  for (const Rail rail : setup.rails) names.push_back(setup.endpoint->device(rail)->name());
  if (setup.switch_rail) names.emplace_back(kSwitchRail);
  setup.log->info("the context is made, by nezha {}: {}, rails {}", NEZHA_VERSION,
                  describe(setup.options, setup.algorithm), absl::StrJoin(names, ", "));
  if (setup.is_split()) return;  // the parent context has already described the rails
  const RailThreads threads = threads_of(setup.options.rails, share);
  setup.log->info("threads that may drive the rails: {}; cores: {}; ranks on this machine: {}{}",
                  threads.given + threads.spare, share.cores, share.is_known ? "" : "at most ",
                  share.ranks);
  for (size_t i = 0; i < setup.rails.size(); ++i) {
    const auto uri = RailUri::parse(setup.options.rails[i]);
    if (!uri.ok()) continue;  // cannot be, since the device is open
    setup.log->info("rail {}: interface {}, address {}, {}", names[i], uri->interface,
                    setup.endpoint->device(setup.rails[i])->address(), rate_of(uri->interface));
  }
  if (!setup.switch_rail) return;
  setup.log->info("rail {}: interface {}, manager {}, {}", kSwitchRail,
                  setup.switch_rail->interface, setup.switch_rail->manager.str(),
                  rate_of(setup.switch_rail->interface));
}

}  // namespace nezha
