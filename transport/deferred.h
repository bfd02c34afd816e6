// SPDX-License-Identifier: Apache-2.0
// Work that is done once for many events, and not from inside of the call that asks for it.
#pragma once

#include <functional>
#include <utility>

#include "transport/progress.h"

namespace nezha {

// Defers one kind of work. All calls are made under Progress's lock, and the work runs under it.
// The object has to live until what was deferred has run.
class Deferred {
 public:
  Deferred(Progress& progress, std::function<void()> work)
      : progress_(progress), work_(std::move(work)) {}
  Deferred(const Deferred&) = delete;
  Deferred& operator=(const Deferred&) = delete;

  // Does the work once the events at hand have been handled.
  void soon() {
    if (is_due_) return;
    progress_.defer([this] {
      is_due_ = false;
      work_();
    });
    is_due_ = true;
  }

 private:
  Progress& progress_;
  std::function<void()> work_;
  bool is_due_ = false;
};

}  // namespace nezha
