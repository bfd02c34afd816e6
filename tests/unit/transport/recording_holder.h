// SPDX-License-Identifier: Apache-2.0
// Records changes of held memory, for tests of which objects hold it.
#pragma once

#include <map>
#include <utility>

#include "transport/held_memory.h"

namespace nezha::testing {

// Knows, during its lifetime, what this process holds.
class RecordingHolder final : public HeldMemory::Listener {
 public:
  RecordingHolder() { HeldMemory::of_process().add(this); }
  ~RecordingHolder() { HeldMemory::of_process().remove(this); }
  RecordingHolder(const RecordingHolder&) = delete;
  RecordingHolder& operator=(const RecordingHolder&) = delete;

  // How often this range has been held so far.
  int comings(const void* begin, size_t bytes) { return of(begin, bytes).first; }
  bool has(const void* begin, size_t bytes) { return of(begin, bytes).second; }

 private:
  void hold(const std::byte* begin, size_t bytes) override {
    const std::lock_guard lock(mutex_);
    auto& [comings, is_held] = ranges_[{begin, bytes}];
    ++comings;
    is_held = true;
  }
  void release(const std::byte* begin, size_t bytes) noexcept override {
    const std::lock_guard lock(mutex_);
    ranges_[{begin, bytes}].second = false;
  }
  std::pair<int, bool> of(const void* begin, size_t bytes) {
    const std::lock_guard lock(mutex_);
    return ranges_[{begin, bytes}];
  }

  std::mutex mutex_;
  std::map<std::pair<const void*, size_t>, std::pair<int, bool>> ranges_;
};

}  // namespace nezha::testing
