// SPDX-License-Identifier: Apache-2.0
// What the log says of a context when it is made.
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "context/context_impl.h"
#include "context/rails.h"
#include "context/settings.h"
#include "control/nic_probe.h"
#include "nezha/version.h"

namespace nezha {
namespace {

std::string rate_of(const std::string& interface) {
  const int speed = wire_speed_of(interface);
  return speed > 0 ? absl::StrCat(speed, " Mbit/s") : "unknown rate";
}

}  // namespace

void ContextImpl::announce() const {
  if (!log_->should_log(spdlog::level::info)) return;
  Progress::Guard guard(endpoint_->progress());
  std::vector<std::string> names;
  for (const Rail rail : rails_) names.push_back(endpoint_->device(rail)->name());
  if (switch_rail_) names.emplace_back(kSwitchRail);
  log_->info("the context is made, by nezha {}: {}, rails {}", NEZHA_VERSION,
             describe(options_, algorithm_), absl::StrJoin(names, ", "));
  if (!listed_.empty()) return;  // the context that it was split from has told of the rails
  for (size_t i = 0; i < rails_.size(); ++i) {
    const auto uri = RailUri::parse(options_.rails[i]);
    if (!uri.ok()) continue;  // it would not have been opened
    log_->info("rail {}: interface {}, address {}, {}", names[i], uri->interface,
               endpoint_->device(rails_[i])->address(), rate_of(uri->interface));
  }
  if (!switch_rail_) return;
  log_->info("rail {}: interface {}, manager {}, {}", kSwitchRail, switch_rail_->interface,
             switch_rail_->manager.str(), rate_of(switch_rail_->interface));
}

}  // namespace nezha
