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

/// An operation in flight. It goes on whether or not anybody waits for it. Its buffers belong to it
/// until it is over: until `test` or `wait` has returned true or thrown, `cancel` has returned, or
/// the handle or the context is gone.
///
/// `test`, `error`, `source`, `bytes`, `notify` and `cancel` may be called from any thread; one at
/// a time may wait. The handle outlives its context at will: what was in flight when the context
/// went has failed.
///
/// In a child of fork() a handle of the parent's can be destroyed only, which does nothing; all
/// else throws InvalidArgument.
class NEZHA_EXPORT Handle {
 public:
  /// Of no operation: over, and without error.
  Handle();
  /// As `cancel`, which a finished operation does not mind: memory that goes out of scope with the
  /// handle is never written to. Does not block.
  ~Handle();
  /// Takes the operation over; `other` has none any more.
  Handle(Handle&& other) noexcept;
  /// Takes the operation over; the one that this handle had is `other`'s, until that goes.
  Handle& operator=(Handle&& other) noexcept;

  /// Whether it is over, well or not. Never blocks, and never throws the operation's error.
  bool test() const;

  /// Until it is over, which it is by its own deadline (`CollectiveOptions::setTimeout`). Throws
  /// IoError or TimeoutError if it failed.
  void wait();

  /// As above, but gives up after `patience`, which does the operation no harm: false if it is not
  /// over yet.
  bool wait(std::chrono::milliseconds patience);

  /// What `wait` would throw; null while it is not over, and after success.
  std::exception_ptr error() const;

  /// The rank that a receive's message has come from. -1 of all other operations, and while it is
  /// not over, and if it has failed.
  int source() const;

  /// The size of the message that a receive has taken, in bytes. 0 of all other operations, and
  /// while it is not over, and if it has failed.
  size_t bytes() const;

  /// Has `function` called once, when the operation is over, well or not. If it is over already,
  /// this thread calls it at once. Otherwise a thread that waits in nezha calls it, or one of
  /// nezha's own, under a lock of nezha's. So `function` must not throw, must not call nezha, and
  /// must not wait for another thread; it may wake one. `test` is true for a thread that was woken.
  /// InvalidArgument is thrown if the function is null, or if the operation has one already.
  void notify(std::function<void()> function);

  /// Gives the buffers back now. An operation that was not over fails, on all ranks: the others
  /// cannot complete it, so the context is broken, and their errors name this rank.
  void cancel();

 private:
  friend class ContextImpl;
  friend NEZHA_EXPORT void waitAll(std::vector<Handle>& handles);
  friend NEZHA_EXPORT bool waitAll(std::vector<Handle>& handles,
                                   std::chrono::milliseconds patience);
  bool finish(int64_t deadline);  // false: it is not over by then
  explicit Handle(std::shared_ptr<RunningOperation> running);
  std::shared_ptr<RunningOperation> running_;
};

/// Waits until all of these operations are over, in whichever order they end, and then throws what
/// `wait` of the first of them in the list throws that has failed. So no buffer of theirs is in use
/// afterwards, whatever has happened. One thread at a time may wait for each of them.
NEZHA_EXPORT void waitAll(std::vector<Handle>& handles);

/// As above, but gives up after `patience`, which does the operations no harm: false if not all are
/// over yet, whether or not one has failed.
NEZHA_EXPORT bool waitAll(std::vector<Handle>& handles, std::chrono::milliseconds patience);

}  // namespace nezha
