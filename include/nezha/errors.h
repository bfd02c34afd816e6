// SPDX-License-Identifier: Apache-2.0
/// The exceptions nezha throws. They derive from Gloo's, so that a caller that catches
/// `gloo::IoException` (elastic training does) needs no change.
#pragma once

#include <gloo/common/error.h>

#include <string>
#include <utility>
#include <vector>

#include "nezha/export.h"

namespace nezha {

/// Bad input: an option that is out of range, an unknown name, a wrong URI, or a call in a state
/// that forbids it. Nothing was sent and no memory was written; the context stays usable.
class NEZHA_EXPORT InvalidArgument : public ::gloo::InvalidOperationException {
 public:
  /// An error with this `what()`.
  explicit InvalidArgument(const std::string& what) : InvalidOperationException(what) {}
};

/// The operation failed: a peer died, has left, disagreed, or could not be reached on any rail, or
/// this process has run out of memory, descriptors or threads. The context is broken from here on:
/// each later call on it throws the same error. The process may make a new context with the
/// remaining peers. When a call throws, nothing writes to or reads from its buffers any more; the
/// output's contents are undefined.
///
/// `what()` says "is gone" if the peer died unexpectedly, and "has left" if it destroyed its
/// context or ended by `exit`. If no rail ever led to the peer, `what()` says that no connection
/// could be made: the peer may have died, or a firewall may stand in between.
///
/// An operation that fails on one rank may have completed on others. The next operation of those
/// others then fails.
class NEZHA_EXPORT IoError : public ::gloo::IoException {
 public:
  /// An error with this `what()`, about these `ranks()`.
  explicit IoError(const std::string& what, std::vector<int> ranks = {})
      : IoException(what), ranks_(std::move(ranks)) {}

  /// The ranks of the context that are lost as far as this rank knows, in increasing order, each
  /// once: those that died, have left, or could not be reached. A TimeoutError adds the ranks that
  /// do not answer, and the first rank that has not appeared in the store. If there are none of
  /// these, it adds the ranks that have not called the operation. (Up to 16 of each kind are
  /// known.) A rank that learns of a failure from another rank gets up to 64 ranks of that rank's
  /// list.
  ///
  /// The list is empty if no rank is lost, for example if memory ran out or two ranks called
  /// different operations. Ranks may have different lists, because each learns of another's end at
  /// its own time. A rank that the others could not reach finds itself in its own list.
  /// `examples/survivors` goes on without the lost ranks.
  const std::vector<int>& ranks() const noexcept { return ranks_; }

 private:
  std::vector<int> ranks_;
};

/// An IoError whose cause is a deadline. `what()` names the ranks that the operation waited for.
class NEZHA_EXPORT TimeoutError : public IoError {
 public:
  /// An error with this `what()`, about these `ranks()`.
  explicit TimeoutError(const std::string& what, std::vector<int> ranks = {})
      : IoError(what, std::move(ranks)) {}
};

}  // namespace nezha
