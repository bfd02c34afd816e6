// SPDX-License-Identifier: Apache-2.0
// A context's flare rail: whose allreduces a switch adds up.
#include "absl/strings/str_cat.h"
#include "common/port_range.h"
#include "context/context_impl.h"
#include "context/rails.h"
#include "context/raise.h"
#include "nezha/errors.h"

namespace nezha {

// A switch adds up, and the ranks speak to each other by links: over the same interface, if no
// other is named.
void ContextImpl::take_switch_rail() {
  std::vector<std::string> links;
  for (const std::string& uri : options_.rails) {
    if (!is_switch_rail(uri)) {
      links.push_back(uri);
      continue;
    }
    const auto rail = switch_rail(uri);
    refuse_unless(rail.status());
    if (switch_rail_) {
      throw InvalidArgument(prefixed(
          rank_of_, absl::StrCat("rail '", uri, "': a context takes one flare rail at most")));
    }
    switch_rail_ = *rail;
    switch_rail_->ports = PortRange::parse(options_.ports).value_or(PortRange());
  }
  is_switch_alone_ = links.empty() && switch_rail_;
  if (is_switch_alone_) {
    const std::string& address = switch_rail_->address;
    links.push_back(
        absl::StrCat("tcp:", switch_rail_->interface, address.empty() ? "" : "?address=", address));
  }
  options_.rails = std::move(links);
}

// Under the lock.
void ContextImpl::open_switch_rail() {
  if (!switch_rail_ || options_.size == 1) return;
  flare::FlareEngineOwner& owner = *this;
  auto engine =
      flare::FlareEngine::open(endpoint_->progress(), *switch_rail_, group_, job_, log_, owner);
  if (!engine.ok()) {
    refuse_unless(
        absl::Status(engine.status().code(),
                     absl::StrCat("rail 'flare:", switch_rail_->interface, "@",
                                  switch_rail_->manager.str(), "': ", engine.status().message())));
  }
  flare_ = *std::move(engine);
  add_engine(kSwitchRail, *flare_);
}

// Says once why it cannot.
bool ContextImpl::can_do(const Engine& engine, const Operation& operation) {
  const absl::Status status = engine.supports(operation);
  if (!status.ok() && unsupported_.insert(std::string(status.message())).second) {
    log_->info("without a switch: {}", std::string(status.message()));
  }
  return status.ok();
}

}  // namespace nezha
