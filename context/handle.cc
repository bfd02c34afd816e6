// SPDX-License-Identifier: Apache-2.0
#include "nezha/handle.h"

#include <limits>
#include <utility>

#include "context/running_operation.h"

namespace nezha {

Handle::Handle() = default;
Handle::Handle(std::shared_ptr<RunningOperation> running) : running_(std::move(running)) {}

Handle::~Handle() {
  if (running_ == nullptr) return;
  if (running_->is_inherited()) {
    running_->keep();
  } else {
    try {
      cancel();
    } catch (...) {
      // Another exception may be on its way, and this one would end the process.
    }
  }
}

Handle::Handle(Handle&& other) noexcept = default;

Handle& Handle::operator=(Handle&& other) noexcept {
  std::swap(running_, other.running_);
  return *this;
}

bool Handle::test() const { return running_ == nullptr || running_->test(); }

void Handle::wait() {
  if (running_ == nullptr) return;
  running_->wait(std::numeric_limits<Nanos>::max());
  running_->raise_if_failed();
}

bool Handle::wait(std::chrono::milliseconds patience) {
  if (running_ == nullptr) return true;
  if (!running_->wait(now() + to_nanos(patience))) return false;
  running_->raise_if_failed();
  return true;
}

std::exception_ptr Handle::error() const {
  if (!test() || running_ == nullptr) return nullptr;
  try {
    running_->raise_if_failed();
  } catch (...) {
    return std::current_exception();
  }
  return nullptr;
}

void Handle::cancel() {
  if (running_ != nullptr) running_->cancel();
}

}  // namespace nezha
