// SPDX-License-Identifier: Apache-2.0
/// allgather: every rank contributes a block, and every rank gets the blocks of all ranks.
/// The options read like Gloo's (`gloo/allgather.h`, `gloo/allgatherv.h`).
#pragma once

#include "nezha/collective_options.h"
#include "nezha/export.h"
#include "nezha/handle.h"

namespace nezha {

/// One allgather. The input is this rank's block, and the output is all blocks. The output has
/// size() times as many elements as the input, or, with counts that are the same on every rank,
/// `counts[r]` elements from rank r (which MPI and Gloo call allgatherv). Without an input, this
/// rank's block of the output is the input (in place).
///
/// The options may be used again, even while an operation that was started with them runs. They are
/// not thread-safe.
class AllgatherOptions : public BlocksOptions {
 public:
  using BlocksOptions::BlocksOptions;
};

/// Runs one allgather. Returns when this rank's result is complete and its input is no longer read.
/// Algorithms: kBruck for small messages, kRing for large ones, and kDirect. The operation goes
/// over all rails of the context, by stripes. Thread-safe.
///
/// Throws InvalidArgument (nothing was started). Throws IoError or TimeoutError (nezha/errors.h),
/// which name the rank, the rail and what was tried, also if ranks disagree on the collective, the
/// number of elements or their type. A rail that dies is no error while another rail joins the same
/// ranks.
NEZHA_EXPORT void allgather(const AllgatherOptions& options);

/// Starts one allgather and returns; the operation continues by itself, as allreduceAsync's does.
/// Throws InvalidArgument (nothing was started), and IoError if the context is broken.
[[nodiscard]] NEZHA_EXPORT Handle allgatherAsync(const AllgatherOptions& options);

}  // namespace nezha
