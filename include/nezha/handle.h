// SPDX-License-Identifier: Apache-2.0
/// A handle of an operation that runs while its caller does something else.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <vector>

#include "nezha/export.h"

namespace nezha {

class ContextImpl;
class RunningOperation;

/// An operation in flight. It continues whether or not anybody waits for it. Its buffers belong to
/// it until it is over: until `test` or `wait` has returned true or thrown, `cancel` has returned,
/// or the handle or the context has been destroyed.
///
/// `test`, `error`, `source`, `bytes`, `notify` and `cancel` may be called from any thread. Only
/// one thread at a time may wait. A handle may outlive its context: an operation that was in flight
/// when the context was destroyed has failed.
///
/// In a child of fork() a handle of the parent's can only be destroyed, which does nothing.
/// Everything else throws InvalidArgument.
class NEZHA_EXPORT Handle {
 public:
  /// A handle of no operation: it is over, without an error.
  Handle();
  /// Does what `cancel` does, which has no effect on a finished operation. nezha therefore never
  /// writes to memory that goes out of scope with the handle. Does not block.
  ~Handle();
  /// Takes over the operation of `other`, which then has none.
  Handle(Handle&& other) noexcept;
  /// Takes over the operation of `other`, which gets the one that this handle had until now.
  Handle& operator=(Handle&& other) noexcept;

  /// Returns whether the operation is over, successfully or not. Never blocks, and never throws the
  /// operation's error.
  bool test() const;

  /// Waits until the operation is over, which its own deadline ensures
  /// (`CollectiveOptions::setTimeout`). Throws IoError or TimeoutError if it failed.
  void wait();

  /// Waits as above, but stops after `patience`, which does not affect the operation. Returns false
  /// if the operation is not over yet.
  bool wait(std::chrono::milliseconds patience);

  /// Returns what `wait` would throw; null while the operation is not over, and after success.
  std::exception_ptr error() const;

  /// Returns the rank that a receive's message has come from. Returns -1 for all other operations,
  /// and for a receive that is not over or has failed.
  int source() const;

  /// Returns the size of the message that a receive has taken, in bytes. Returns 0 for all other
  /// operations, and for a receive that is not over or has failed.
  size_t bytes() const;

  /// Sets a `function` that is called once, when the operation is over, successfully or not. If the
  /// operation is over already, this thread calls the function at once. Otherwise a thread that
  /// waits in nezha calls it, or one of nezha's own threads, under a lock of nezha's. The function
  /// must therefore not throw, must not call nezha, and must not wait for another thread. It may
  /// wake a thread, for which `test` is then true. Throws InvalidArgument if the function is null,
  /// or if the operation has one already.
  void notify(std::function<void()> function);

  /// Gives the buffers back now. An operation that was not over fails on all ranks, because the
  /// others cannot complete it. The context is then broken, and the errors of the other ranks name
  /// this rank.
  void cancel();

 private:
  friend class ContextImpl;
  friend NEZHA_EXPORT void waitAll(std::vector<Handle>& handles);
  friend NEZHA_EXPORT bool waitAll(std::vector<Handle>& handles,
                                   std::chrono::milliseconds patience);
  bool finish(int64_t deadline);  // false: it is not over by the deadline
  explicit Handle(std::shared_ptr<RunningOperation> running);
  std::shared_ptr<RunningOperation> running_;
};

/// Waits until all these operations are over, in whichever order they end. If any has failed, it
/// then throws what `wait` of the first failed one in the list throws. In either case no buffer of
/// these operations is in use afterwards. One thread at a time may wait for each of them.
NEZHA_EXPORT void waitAll(std::vector<Handle>& handles);

/// Waits as above, but stops after `patience`, which does not affect the operations. Returns false
/// if not all are over yet, whether or not one has failed.
NEZHA_EXPORT bool waitAll(std::vector<Handle>& handles, std::chrono::milliseconds patience);

}  // namespace nezha
