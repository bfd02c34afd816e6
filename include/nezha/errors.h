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

/// Bad input: an option out of range, an unknown name, a wrong URI, a call in a state that forbids
/// it. Nothing was sent and no memory was written; the context stays usable.
class NEZHA_EXPORT InvalidArgument : public ::gloo::InvalidOperationException {
 public:
  /// With this `what()`.
  explicit InvalidArgument(const std::string& what) : InvalidOperationException(what) {}
};

/// The operation failed: a peer died, has left, disagreed, or could not be reached on any rail, or
/// this process has run out of memory, descriptors or threads. The context is broken from here on:
/// each later call on it throws the same error. The process may make a new one, with the peers that
/// are left. `what()` says "is gone" of a peer that died without a word, and "has left" of one that
/// destroyed its context or ended by `exit`. It says that no connection could be made of a peer
/// that no rail ever led to: such a peer may have died, or a firewall may stand in between. When a
/// call throws, nothing writes to or reads from its buffers any more; the output's contents are
/// undefined.
///
/// An operation that fails on one rank may have completed on others, whose next one then fails.
class NEZHA_EXPORT IoError : public ::gloo::IoException {
 public:
  /// With this `what()`, about these `ranks()`.
  explicit IoError(const std::string& what, std::vector<int> ranks = {})
      : IoException(what), ranks_(std::move(ranks)) {}

  /// The ranks of the context that are lost as far as this rank knows, in increasing order, each
  /// once: those that died, have left, or could not be reached. A TimeoutError adds those that do
  /// not answer and the first one that has not appeared in the store; or, if there are none of
  /// these, those that have not called the operation (up to 16 of each are known). A rank that
  /// learns of a failure from another one gets up to 64 of that one's list. The list is empty where
  /// no rank is lost, as where memory ran out or two ranks called different operations. Ranks may
  /// have different lists, since each learns of another's end at its own time; and a rank that the
  /// others could not reach finds itself in its own. `examples/survivors` goes on without them.
  const std::vector<int>& ranks() const noexcept { return ranks_; }

 private:
  std::vector<int> ranks_;
};

/// An IoError whose cause is a deadline; `what()` names whom the operation waited for.
class NEZHA_EXPORT TimeoutError : public IoError {
 public:
  /// With this `what()`, about these `ranks()`.
  explicit TimeoutError(const std::string& what, std::vector<int> ranks = {})
      : IoError(what, std::move(ranks)) {}
};

}  // namespace nezha
