// SPDX-License-Identifier: Apache-2.0
#include "transport/held_memory.h"

#include <new>

namespace nezha {
namespace {

void tell(HeldMemory::Listener& listener, const std::byte* begin, size_t bytes) noexcept {
  try {
    listener.hold(begin, bytes);
  } catch (const std::bad_alloc&) {
    // The listener moves the range's contents as those of memory that nobody holds.
  }
}

}  // namespace

HeldMemory& HeldMemory::of_process() {
  static PerProcess<HeldMemory> held;
  return held.get();
}

void HeldMemory::hold(Span range) noexcept {
  if (range.size() < kLeast) return;
  const std::lock_guard lock(mutex_);
  try {
    if (++holders_[{range.data(), range.size()}] > 1) return;
  } catch (const std::bad_alloc&) {
    return;
  }
  for (Listener* listener : listeners_) tell(*listener, range.data(), range.size());
}

void HeldMemory::release(Span range) noexcept {
  if (range.size() < kLeast) return;
  const std::lock_guard lock(mutex_);
  const auto entry = holders_.find({range.data(), range.size()});
  if (entry == holders_.end() || --entry->second > 0) return;
  for (Listener* listener : listeners_) listener->release(range.data(), range.size());
  holders_.erase(entry);
}

void HeldMemory::add(Listener* listener) {
  const std::lock_guard lock(mutex_);
  listeners_.push_back(listener);
  for (const auto& [range, holders] : holders_) tell(*listener, range.first, range.second);
}

void HeldMemory::remove(Listener* listener) noexcept {
  const std::lock_guard lock(mutex_);
  std::erase(listeners_, listener);
}

}  // namespace nezha
