// SPDX-License-Identifier: Apache-2.0
// What a context does without an engine that is lost: control/recovery.h.
#include <algorithm>
#include <memory>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "context/context_impl.h"

namespace nezha {

// The lanes of engines follow those of rank 0's rails.
int ContextImpl::lane_of(const Engine& engine) const {
  const auto found = std::find_if(engines_.begin(), engines_.end(),
                                  [&](const auto& entry) { return entry.second == &engine; });
  return control_->first_engine() + static_cast<int>(found - engines_.begin());
}

Engine* ContextImpl::engine_of(int lane) const {
  const auto index = static_cast<size_t>(lane - control_->first_engine());
  return index < engines_.size() ? engines_[index].second : nullptr;
}

void ContextImpl::lose_engine(const Engine& engine) {
  if (control_ != nullptr && !control_->is_idle()) control_->lose_engine(lane_of(engine));
}

void ContextImpl::regain_engine(const Engine& engine) {
  if (control_ != nullptr && !control_->is_idle()) control_->regain_engine(lane_of(engine));
}

void ContextImpl::on_engine_lost(int lane, const absl::Status& /*why*/) {
  control_->lose_engine(lane);
}

std::string ContextImpl::why_frozen() const { return control_->why_frozen(); }

std::vector<FrozenPart> ContextImpl::on_freeze(int lane) {
  Engine& engine = *engine_of(lane);
  std::vector<FrozenPart> parts;
  absl::flat_hash_map<OperationId, size_t> places;
  for (const auto& operation : running_) {
    auto part = operation->freeze(engine, options_.size);
    if (!part) continue;
    places[part->operation] = parts.size();
    parts.push_back(*std::move(part));
  }
  const size_t running = parts.size();
  retained_ = engine.take_retained();
  for (const Retained& kept : retained_) {
    const OperationId id{kept.tag, kept.ordinal};
    const auto [place, is_new] = places.try_emplace(id, parts.size());
    if (is_new) parts.push_back({id, {}, {}});
    // What has not returned has all of it still.
    if (place->second >= running) add(parts[place->second].final, {kept.offset, kept.bytes.size()});
  }
  return parts;
}

absl::Status ContextImpl::on_recover(int lane, uint32_t epoch, const std::vector<Repair>& repairs) {
  absl::flat_hash_map<OperationId, std::pair<const Repair*, uint32_t>>
      of;  // and the first's number
  uint32_t number = 1;
  for (const Repair& repair : repairs) {
    of[repair.operation] = {&repair, number};
    number += static_cast<uint32_t>(repair.pieces.size());
  }
  // Some may be over at once.
  for (const auto& operation : std::vector(running_)) {
    const auto found = of.find(operation->id());
    const auto [repair, first] = found == of.end() ? std::pair(nullptr, 0u) : found->second;
    if (repair != nullptr) of.erase(found);
    absl::Status status = operation->repair(hosts_, group_, lane, epoch, repair, first);
    if (!status.ok() || !broken_.ok()) return status;
  }
  // Those that are over here. What this rank has not come to yet has no pieces.
  for (const Repair& repair : repairs) {
    const auto found = of.find(repair.operation);
    if (found == of.end() || repair.pieces.empty()) continue;
    absl::Status status = stand_by(lane, epoch, repair, found->second.second);
    if (!status.ok()) return status;
  }
  retained_.clear();
  // It may have come back before this rank heard how it is to go on without it.
  if (flare_ != nullptr && flare_->is_up()) control_->regain_engine(lane);
  return absl::OkStatus();
}

absl::Status ContextImpl::stand_by(int lane, uint32_t epoch, const Repair& repair,
                                   uint32_t number) {
  const auto bystander =
      std::make_shared<Bystander>([this](Bystander& self, const absl::Status& status) {
        // Not from inside of one of its tasks.
        const auto is_it = [&](const auto& other) { return other.get() == &self; };
        const auto found = std::find_if(bystanders_.begin(), bystanders_.end(), is_it);
        if (found != bystanders_.end()) {
          endpoint_->progress().defer([over = *found] {});
          bystanders_.erase(found);
        }
        if (!status.ok()) on_operation_failed(status);
      });
  bystanders_.push_back(bystander);
  return bystander->start(hosts_, group_, static_cast<uint8_t>(lane), epoch, repair, number,
                          retained_);
}

}  // namespace nezha
