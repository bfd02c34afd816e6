// SPDX-License-Identifier: Apache-2.0
#include "flare_offload/engine/stream_order.h"

#include <algorithm>
#include <utility>

namespace nezha::flare {

void StreamLeader::clear() {
  kept_ = 0;
  uses_.clear();
  queue_.clear();
  started_.clear();
}

void StreamLeader::forget(const OperationId& name) {
  started_.erase(name);
  std::erase(queue_, name);
}

std::optional<StreamLeader::Choice> StreamLeader::next() {
  if (queue_.empty() || busy_.empty()) return std::nullopt;
  const auto last = busy_.end() - 1;
  auto stream = std::find(busy_.begin(), last, false);
  auto chosen = queue_.begin();
  if (stream == last) {
    chosen = first_started_everywhere();
    if (*last || chosen == queue_.end()) return std::nullopt;
  }
  const OperationId name = *chosen;
  queue_.erase(chosen);
  started_.erase(name);
  *stream = true;
  const bool is_kept = stream != last && deserves_stream(name.tag);
  return Choice{name, static_cast<int>(stream - busy_.begin()), is_kept};
}

std::deque<OperationId>::iterator StreamLeader::first_started_everywhere() {
  return std::find_if(queue_.begin(), queue_.end(), [this](const OperationId& name) {
    const auto found = started_.find(name);
    return found != started_.end() && static_cast<int>(found->second.size()) == ranks_ - 1;
  });
}

// Counts the operation. Returns whether the tag has the stream from now on.
bool StreamLeader::deserves_stream(uint32_t tag) {
  if (kept_ >= streams_ - kShared) return false;
  if (uses_.size() >= kMostCounted && !uses_.contains(tag)) uses_.clear();
  if (++uses_[tag] < kOftenUsed) return false;
  uses_.erase(tag);
  ++kept_;
  return true;
}

void StreamFollower::clear() {
  orders_.clear();
  kept_.clear();
}

std::optional<int> StreamFollower::take(const OperationId& name) {
  const auto order = orders_.find(name);
  if (order == orders_.end()) return kept_stream(name);
  const int stream = order->second;
  orders_.erase(order);
  return stream;
}

std::optional<int> StreamFollower::kept_stream(const OperationId& name) const {
  const auto kept = kept_.find(name.tag);
  if (kept == kept_.end() || name.ordinal < kept->second.ordinal) return std::nullopt;
  return kept->second.stream;
}

bool StreamFollower::is_kept_for(uint32_t tag, int stream) const {
  const auto kept = kept_.find(tag);
  return kept != kept_.end() && kept->second.stream == stream;
}

}  // namespace nezha::flare
