// SPDX-License-Identifier: Apache-2.0
/// barrier: no rank continues before all ranks have called it.
/// The options read like Gloo's (`gloo/barrier.h`).
#pragma once

#include "nezha/collective_options.h"
#include "nezha/export.h"
#include "nezha/handle.h"

namespace nezha {

/// One barrier: on which context, and by when. The options may be used again. They are not
/// thread-safe.
class BarrierOptions : public CollectiveOptions {
 public:
  using CollectiveOptions::CollectiveOptions;
};

/// Returns once all ranks have called it. It does not wait for operations that are in flight. It
/// takes ceil(log2(ranks)) messages one after the other (a dissemination barrier: Hensgen, Finkel
/// and Manber 1988). Thread-safe.
///
/// Throws InvalidArgument (nothing was started). Throws IoError or TimeoutError (nezha/errors.h),
/// which name the rank, the rail and what was tried.
NEZHA_EXPORT void barrier(const BarrierOptions& options);

/// Tells the other ranks that this rank has called the barrier, and returns. The handle is over
/// once all ranks have called it. As with allreduceAsync, the operation continues by itself, and
/// several may be in flight. Throws InvalidArgument (nothing was started), and IoError if the
/// context is broken.
[[nodiscard]] NEZHA_EXPORT Handle barrierAsync(const BarrierOptions& options);

}  // namespace nezha
