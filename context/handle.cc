// SPDX-License-Identifier: Apache-2.0
#include "nezha/handle.h"

#include <limits>
#include <utility>

#include "context/running_operation.h"
#include "nezha/errors.h"

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
      // A destructor must not throw: if another exception is propagating, the process would end.
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

bool Handle::finish(int64_t deadline) { return running_ == nullptr || running_->wait(deadline); }

std::exception_ptr Handle::error() const {
  if (!test() || running_ == nullptr) return nullptr;
  try {
    running_->raise_if_failed();
  } catch (...) {
    return std::current_exception();
  }
  return nullptr;
}

int Handle::source() const { return running_ == nullptr ? -1 : running_->source(); }

size_t Handle::bytes() const { return running_ == nullptr ? 0 : running_->received_bytes(); }

void Handle::notify(std::function<void()> function) {
  if (function == nullptr) throw InvalidArgument("the function to be called is null; give one");
  if (running_ == nullptr) return function();
  if (running_->notify(std::move(function))) return;
  throw InvalidArgument("the operation has a function to be called at its end already");
}

void Handle::cancel() {
  if (running_ != nullptr) running_->cancel();
}

void waitAll(std::vector<Handle>& handles) {
  for (Handle& handle : handles) handle.finish(std::numeric_limits<Nanos>::max());
  for (Handle& handle : handles) handle.wait();
}

bool waitAll(std::vector<Handle>& handles, std::chrono::milliseconds patience) {
  const Nanos deadline = now() + to_nanos(patience);
  bool are_over = true;
  for (Handle& handle : handles) are_over &= handle.finish(deadline);
  if (!are_over) return false;
  for (Handle& handle : handles) handle.wait();
  return true;
}

}  // namespace nezha
