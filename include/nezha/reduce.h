// SPDX-License-Identifier: Apache-2.0
/// reduce: every rank contributes a vector, and one rank, the root, gets the element-wise sum, or
/// another reduction.
/// The options read like Gloo's (`gloo/reduce.h`).
#pragma once

#include "nezha/collective_options.h"
#include "nezha/export.h"
#include "nezha/handle.h"

namespace nezha {

/// One reduce: what it reduces, how, to which rank, and by when. May be used again, also while an
/// operation that was started with it runs. Not thread-safe itself.
class ReduceOptions : public RootedOptions, public ReductionOptions {
 public:
  using RootedOptions::RootedOptions;
};

/// Runs one reduce. Returns at the root when the result is complete, and on another rank when its
/// input is no longer read; the result may not be complete by then. For given inputs, root and
/// number of ranks its bits do not depend on the rails, their shares or their failures. Small
/// vectors go over a binomial tree, large ones in segments from rank to rank, in about the time
/// that one rank takes to send its vector once; if the operation is not commutative, in about the
/// time of an allreduce. In a context with a `flare:` rail it returns, on all ranks, only when all
/// have called it, and the bits of what a switch adds up depend on the order of arrival there.
/// Thread-safe.
///
/// Throws InvalidArgument (nothing was started), or IoError / TimeoutError (see there), which name
/// the rank, the rail and what was tried; also if ranks disagree on the collective, the root, the
/// operation, the number of elements or their type. A rail that dies is no error while another one
/// joins the same ranks.
NEZHA_EXPORT void reduce(const ReduceOptions& options);

/// Starts one reduce and returns. It goes on by itself, as allreduceAsync's does, and throws as
/// that: InvalidArgument (nothing was started), and IoError if the context is broken.
[[nodiscard]] NEZHA_EXPORT Handle reduceAsync(const ReduceOptions& options);

}  // namespace nezha
