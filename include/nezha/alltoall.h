// SPDX-License-Identifier: Apache-2.0
/// alltoall: every rank has a block for each rank, and gets one from each.
/// The options read like Gloo's (`gloo/alltoall.h`, `gloo/alltoallv.h`).
#pragma once

#include "nezha/collective_options.h"
#include "nezha/export.h"
#include "nezha/handle.h"

namespace nezha {

/// One alltoall. The input has the blocks that this rank sends, and the output those that it gets:
/// as many elements, the same number on every rank. Without an input the output's contents are the
/// input (in place, which takes memory for one more vector).
///
/// May be used again, also while an operation that was started with it runs. Not thread-safe
/// itself.
class AlltoallOptions : public BlocksOptions {
 public:
  using BlocksOptions::BlocksOptions;
};

/// One alltoallv: an alltoall of blocks of unequal lengths, which both vectors' counts give. Each
/// rank gets as many elements from another as that one sends it, or it is an error. Without an
/// input the output's contents and counts are the input's (in place).
///
/// May be used again, also while an operation that was started with it runs. Not thread-safe
/// itself.
class AlltoallvOptions : public BlocksOptions {
 public:
  using BlocksOptions::BlocksOptions;
};

/// Runs one alltoall. Returns when this rank's result is complete and its input is no longer read.
/// Algorithms: kDirect, kPairwise, and kBruck, which kAuto takes for the smallest blocks among many
/// ranks. kBruck takes few connections, and memory for one more vector and for half a vector for
/// each message that is under way. It goes over all rails of the context, by stripes. Thread-safe.
///
/// Throws InvalidArgument (nothing was started), or IoError / TimeoutError (see there), which name
/// the rank, the rail and what was tried; also if ranks disagree on the collective, the number of
/// elements or their type. A rail that dies is no error while another one joins the same ranks.
NEZHA_EXPORT void alltoall(const AlltoallOptions& options);

/// Starts one alltoall and returns. It goes on by itself, as allreduceAsync's does, and throws as
/// that: InvalidArgument (nothing was started), and IoError if the context is broken.
[[nodiscard]] NEZHA_EXPORT Handle alltoallAsync(const AlltoallOptions& options);

/// As alltoall, of blocks of unequal lengths. Algorithms: kDirect, which is the default since no
/// rank knows how much the others have, and kPairwise.
///
/// Throws InvalidArgument (nothing was started), or IoError / TimeoutError (see there), which name
/// the rank, the rail and what was tried; also if ranks disagree on the collective, a number of
/// elements or their type. A rail that dies is no error while another one joins the same ranks.
NEZHA_EXPORT void alltoallv(const AlltoallvOptions& options);

/// Starts one alltoallv and returns. It goes on by itself, as allreduceAsync's does, and throws as
/// that: InvalidArgument (nothing was started), and IoError if the context is broken.
[[nodiscard]] NEZHA_EXPORT Handle alltoallvAsync(const AlltoallvOptions& options);

}  // namespace nezha
