// SPDX-License-Identifier: Apache-2.0
/// barrier: no rank goes on before all have come.
/// The options read like Gloo's (`gloo/barrier.h`).
#pragma once

#include "nezha/collective_options.h"
#include "nezha/export.h"
#include "nezha/handle.h"

namespace nezha {

/// One barrier: of which context, and by when. May be used again. Not thread-safe itself.
class BarrierOptions : public CollectiveOptions {
 public:
  using CollectiveOptions::CollectiveOptions;
};

/// Returns once all ranks have called it. Says nothing of operations that are in flight. Takes
/// ceil(log2(ranks)) messages one after the other (a dissemination barrier: Hensgen, Finkel and
/// Manber 1988). Thread-safe.
///
/// Throws InvalidArgument (nothing was started), or IoError / TimeoutError (see there), which name
/// the rank, the rail and what was tried.
NEZHA_EXPORT void barrier(const BarrierOptions& options);

/// Tells the other ranks that this one has come, and returns; the handle is over once all have
/// come. As for allreduceAsync, it goes on by itself, several may be in flight, and it throws
/// InvalidArgument (nothing was started), and IoError if the context is broken.
[[nodiscard]] NEZHA_EXPORT Handle barrierAsync(const BarrierOptions& options);

}  // namespace nezha
