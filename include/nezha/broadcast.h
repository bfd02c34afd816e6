// SPDX-License-Identifier: Apache-2.0
/// broadcast: every rank gets the root's vector.
/// The options read like Gloo's (`gloo/broadcast.h`).
#pragma once

#include "nezha/collective_options.h"
#include "nezha/export.h"
#include "nezha/handle.h"

namespace nezha {

/// One broadcast: what it sends, from which rank, and by when. The options may be used again, even
/// while an operation that was started with them runs. They are not thread-safe.
class BroadcastOptions : public RootedOptions {
 public:
  using RootedOptions::RootedOptions;
};

/// Runs one broadcast. Returns on the root when its input is no longer read, and on another rank
/// when its output is complete; the outputs of other ranks may not be complete by then. Algorithms:
/// kTree for small vectors, and kRing for large ones. kRing passes segments from rank to rank, in
/// about the time that one rank takes to send its vector once. In a context with a `flare:` rail a
/// broadcast returns, on all ranks, only when all have called it. Thread-safe.
///
/// Throws InvalidArgument (nothing was started). Throws IoError or TimeoutError (nezha/errors.h),
/// which name the rank, the rail and what was tried, also if ranks disagree on the collective, the
/// root, the number of elements or their type. A rail that dies is no error while another rail
/// joins the same ranks.
NEZHA_EXPORT void broadcast(const BroadcastOptions& options);

/// Starts one broadcast and returns; the operation continues by itself, as allreduceAsync's does.
/// Throws InvalidArgument (nothing was started), and IoError if the context is broken.
[[nodiscard]] NEZHA_EXPORT Handle broadcastAsync(const BroadcastOptions& options);

}  // namespace nezha
