// SPDX-License-Identifier: Apache-2.0
/// alltoall: every rank sends a block to each rank, and gets one from each.
/// The options read like Gloo's (`gloo/alltoall.h`, `gloo/alltoallv.h`).
#pragma once

#include "nezha/collective_options.h"
#include "nezha/export.h"
#include "nezha/handle.h"

namespace nezha {

/// One alltoall. The input has the blocks that this rank sends, and the output those that it gets.
/// Both have the same number of elements, which is also the same on every rank. Without an input,
/// the contents of the output are the input (in place, which takes memory for one more vector).
///
/// The options may be used again, even while an operation that was started with them runs. They are
/// not thread-safe.
class AlltoallOptions : public BlocksOptions {
 public:
  using BlocksOptions::BlocksOptions;
};

/// One alltoallv: an alltoall of blocks of unequal lengths, which the counts of both vectors give.
/// It is an error if a rank expects another number of elements from a rank than that rank sends it.
/// Without an input, the contents and counts of the output are those of the input (in place).
///
/// The options may be used again, even while an operation that was started with them runs. They are
/// not thread-safe.
class AlltoallvOptions : public BlocksOptions {
 public:
  using BlocksOptions::BlocksOptions;
};

/// Runs one alltoall. Returns when this rank's result is complete and its input is no longer read.
/// Algorithms: kDirect, kPairwise, and kBruck, which kAuto chooses for the smallest blocks among
/// many ranks. kBruck needs few connections, but memory for one more vector and for half a vector
/// per message under way. The operation goes over all rails of the context, by stripes.
/// Thread-safe.
///
/// Throws InvalidArgument (nothing was started). Throws IoError or TimeoutError (nezha/errors.h),
/// which name the rank, the rail and what was tried, also if ranks disagree on the collective, the
/// number of elements or their type. A rail that dies is no error while another rail joins the same
/// ranks.
NEZHA_EXPORT void alltoall(const AlltoallOptions& options);

/// Starts one alltoall and returns; the operation continues by itself, as allreduceAsync's does.
/// Throws InvalidArgument (nothing was started), and IoError if the context is broken.
[[nodiscard]] NEZHA_EXPORT Handle alltoallAsync(const AlltoallOptions& options);

/// Runs one alltoallv, as alltoall does, with blocks of unequal lengths. Algorithms: kPairwise, and
/// kDirect, which is the default because no rank knows how much the others have.
///
/// Throws InvalidArgument (nothing was started). Throws IoError or TimeoutError (nezha/errors.h),
/// which name the rank, the rail and what was tried, also if ranks disagree on the collective, a
/// number of elements or their type. A rail that dies is no error while another rail joins the same
/// ranks.
NEZHA_EXPORT void alltoallv(const AlltoallvOptions& options);

/// Starts one alltoallv and returns; the operation continues by itself, as allreduceAsync's does.
/// Throws InvalidArgument (nothing was started), and IoError if the context is broken.
[[nodiscard]] NEZHA_EXPORT Handle alltoallvAsync(const AlltoallvOptions& options);

}  // namespace nezha
