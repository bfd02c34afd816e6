/// The exceptions nezha throws. They derive from Gloo's, so that a caller that catches
/// `gloo::IoException` (elastic training does) needs no change.
#pragma once

#include <gloo/common/error.h>

#include <string>

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
  /// With this `what()`.
  explicit IoError(const std::string& what) : IoException(what) {}
};

/// An IoError whose cause is a deadline; `what()` names whom the operation waited for.
class NEZHA_EXPORT TimeoutError : public IoError {
 public:
  /// With this `what()`.
  explicit TimeoutError(const std::string& what) : IoError(what) {}
};

}  // namespace nezha
