// SPDX-License-Identifier: Apache-2.0
/// broadcast: every rank gets the root's vector.
/// The options read like Gloo's (`gloo/broadcast.h`).
#pragma once

#include "nezha/collective_options.h"
#include "nezha/export.h"
#include "nezha/handle.h"

namespace nezha {

/// One broadcast: of what, from which rank, and by when. May be used again, also while an operation
/// that was started with it runs. Not thread-safe itself.
class BroadcastOptions : public RootedOptions {
 public:
  using RootedOptions::RootedOptions;
};

/// Runs one broadcast. Returns on a rank when its output is complete, and on the root when its
/// input is no longer read; other ranks may not have theirs by then. Algorithms: kTree for small
/// vectors, and kRing, in segments from rank to rank, for large ones, in about the time that one
/// rank takes to send its vector once. In a context with a `flare:` rail it returns, on all ranks,
/// only when all have called it. Thread-safe.
///
/// Throws InvalidArgument (nothing was started), or IoError / TimeoutError (see there), which name
/// the rank, the rail and what was tried; also if ranks disagree on the collective, the root, the
/// number of elements or their type. A rail that dies is no error while another one joins the same
/// ranks.
NEZHA_EXPORT void broadcast(const BroadcastOptions& options);

/// Starts one broadcast and returns. It goes on by itself, as allreduceAsync's does, and throws as
/// that: InvalidArgument (nothing was started), and IoError if the context is broken.
[[nodiscard]] NEZHA_EXPORT Handle broadcastAsync(const BroadcastOptions& options);

}  // namespace nezha
