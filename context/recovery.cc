// SPDX-License-Identifier: Apache-2.0
#include "context/recovery.h"

#include <algorithm>
#include <utility>

#include "absl/container/flat_hash_map.h"

namespace nezha {

std::vector<FrozenPart> Recovery::freeze(int lane) {
  Engine& engine = *engines_.of_lane(lane);
  std::vector<FrozenPart> parts;
  absl::flat_hash_map<OperationId, size_t> places;
  for (const auto& operation : running_) {
    auto part = operation->freeze(engine, setup_.size());
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
    // An operation that has not returned still has its output, so its report covers these bytes.
    if (place->second >= running) add(parts[place->second].final, {kept.offset, kept.bytes.size()});
  }
  return parts;
}

absl::Status Recovery::recover(int lane, uint32_t epoch, const std::vector<Repair>& repairs) {
  absl::flat_hash_map<OperationId, std::pair<const Repair*, uint32_t>>
      of;  // each operation's repair, and the number of the repair's first piece
  uint32_t number = 1;
  for (const Repair& repair : repairs) {
    of[repair.operation] = {&repair, number};
    number += static_cast<uint32_t>(repair.pieces.size());
  }
  // Repairs over a copy, since an operation that is over leaves running_.
  for (const auto& operation : std::vector(running_)) {
    const auto found = of.find(operation->id());
    const auto [repair, first] = found == of.end() ? std::pair(nullptr, 0u) : found->second;
    if (repair != nullptr) of.erase(found);
    absl::Status status = operation->repair(hosts_, roster_.group(), lane, epoch, repair, first);
    if (!status.ok() || is_stopped_) return status;
  }
  // The rest are operations that are over at this rank. Operations that this rank has not entered
  // yet have no pieces.
  for (const Repair& repair : repairs) {
    const auto found = of.find(repair.operation);
    if (found == of.end() || repair.pieces.empty()) continue;
    absl::Status status = stand_by(lane, epoch, repair, found->second.second);
    if (!status.ok()) return status;
  }
  retained_.clear();
  return absl::OkStatus();
}

absl::Status Recovery::stand_by(int lane, uint32_t epoch, const Repair& repair, uint32_t number) {
  const auto bystander =
      std::make_shared<Bystander>([this](Bystander& self, const absl::Status& status) {
        // Deferred, because one of its tasks is calling.
        const auto is_it = [&](const auto& other) { return other.get() == &self; };
        const auto found = std::find_if(bystanders_.begin(), bystanders_.end(), is_it);
        if (found != bystanders_.end()) {
          setup_.progress().defer([over = *found] {});
          bystanders_.erase(found);
        }
        if (!status.ok()) fail_(status);
      });
  bystanders_.push_back(bystander);
  return bystander->start(hosts_, roster_.group(), static_cast<uint8_t>(lane), epoch, repair,
                          number, retained_);
}

void Recovery::stop() {
  is_stopped_ = true;
  retained_.clear();
  // Deferred, because one of their tasks may be calling.
  setup_.progress().defer([over = std::exchange(bystanders_, {})] {});
}

}  // namespace nezha
