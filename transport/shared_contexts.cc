// SPDX-License-Identifier: Apache-2.0
#include "transport/shared_contexts.h"

#include <algorithm>

namespace nezha {

const SharedContexts::Shared* SharedContexts::find(const UniqueId& id) const {
  const auto found = std::find_if(shared_.begin(), shared_.end(),
                                  [&](const Shared& each) { return each.id == id; });
  return found == shared_.end() ? nullptr : &*found;
}

bool SharedContexts::enter(const UniqueId& id) {
  if (contains(id)) return false;
  shared_.push_back({id});
  return true;
}

void SharedContexts::peer_entered(const UniqueId& id, bool is_member) {
  if (contains(id) || (shared_.size() >= kMost && !is_member)) return;
  shared_.push_back({id, /*is_untold=*/false});
}

void SharedContexts::peer_left(const UniqueId& id) {
  if (shared_.size() < kMost) enter(id);
  for (Shared& each : shared_) each.has_left |= each.id == id;
}

void SharedContexts::close(const UniqueId& id) {
  for (Shared& each : shared_) each.is_closing |= each.id == id;
}

std::vector<UniqueId> SharedContexts::end_closed(
    absl::FunctionRef<bool(uint64_t context)> is_pending) {
  std::vector<UniqueId> ended;
  for (size_t i = 0; i < shared_.size();) {
    const Shared each = shared_[i];
    if (!each.is_closing || is_pending(each.id.low)) {
      ++i;
      continue;
    }
    shared_.erase(shared_.begin() + static_cast<ptrdiff_t>(i));
    if (each.has_left) continue;
    std::erase(closed_, each.id);
    if (closed_.size() == kMostClosed) closed_.pop_front();
    closed_.push_back(each.id);
    ended.push_back(each.id);
  }
  return ended;
}

std::vector<UniqueId> SharedContexts::take_untold(
    absl::FunctionRef<bool(const UniqueId& id)> is_member) {
  std::vector<UniqueId> untold;
  for (Shared& each : shared_) {
    if (!each.is_untold || !each.is_open() || !is_member(each.id)) continue;
    each.is_untold = false;
    untold.push_back(each.id);
  }
  return untold;
}

void SharedContexts::told(const UniqueId& id) {
  for (Shared& each : shared_) each.is_untold &= each.id != id;
}

void SharedContexts::tell_again() {
  for (Shared& each : shared_) each.is_untold = true;
}

bool SharedContexts::has_left(uint64_t context) const {
  return std::any_of(shared_.begin(), shared_.end(),
                     [&](const Shared& each) { return each.has_left && each.id.low == context; });
}

std::vector<UniqueId> SharedContexts::open() const {
  std::vector<UniqueId> open;
  for (const Shared& each : shared_) {
    if (each.is_open()) open.push_back(each.id);
  }
  return open;
}

bool SharedContexts::has_open(absl::FunctionRef<bool(const UniqueId& id)> counts) const {
  return std::any_of(shared_.begin(), shared_.end(),
                     [&](const Shared& each) { return each.is_open() && counts(each.id); });
}

const UniqueId* SharedContexts::next(uint32_t turn) const {
  for (size_t i = 0; i < shared_.size(); ++i) {
    const Shared& each = shared_[(turn + i) % shared_.size()];
    if (!each.has_left) return &each.id;
  }
  return nullptr;
}

bool SharedContexts::is_closed(const UniqueId& id) const {
  return std::find(closed_.begin(), closed_.end(), id) != closed_.end();
}

}  // namespace nezha
