// SPDX-License-Identifier: Apache-2.0
/// gather: every rank contributes a block, and one rank, the root, gets the blocks of all ranks.
/// The options read like Gloo's (`gloo/gather.h`).
#pragma once

#include "nezha/collective_options.h"
#include "nezha/export.h"
#include "nezha/handle.h"

namespace nezha {

/// One gather. The input is this rank's block, which has the same number of elements on every rank.
/// The root's output has all blocks; the outputs of other ranks are ignored. Without an input, the
/// root's own block is already at its place in the output (in place).
///
/// The options may be used again, even while an operation that was started with them runs. They are
/// not thread-safe.
class GatherOptions : public BlocksOptions {
 public:
  using BlocksOptions::BlocksOptions;

  /// Sets the rank that gets the blocks. It must be given, and must be the same on every rank.
  void setRoot(int root) { root_ = root; }
};

/// One gatherv: a gather of blocks of unequal lengths, which the counts of the root's output give.
///
/// The options may be used again, even while an operation that was started with them runs. They are
/// not thread-safe.
class GathervOptions : public BlocksOptions {
 public:
  using BlocksOptions::BlocksOptions;

  /// Sets the rank that gets the blocks. It must be given, and must be the same on every rank.
  void setRoot(int root) { root_ = root; }
};

/// Runs one gather. Returns at the root when the result is complete, and on another rank when its
/// input is no longer read. No rank returns before its left neighbour, the rank before it, has
/// called it, too. Algorithms: kTree for small messages, in which ranks that pass blocks on take
/// memory for all blocks, and kDirect for large ones. The operation goes over all rails of the
/// context, by stripes. Thread-safe.
///
/// Throws InvalidArgument (nothing was started). Throws IoError or TimeoutError (nezha/errors.h),
/// which name the rank, the rail and what was tried, also if ranks disagree on the collective, the
/// root, the number of elements or their type. A rail that dies is no error while another rail
/// joins the same ranks.
NEZHA_EXPORT void gather(const GatherOptions& options);

/// Starts one gather and returns; the operation continues by itself, as allreduceAsync's does.
/// Throws InvalidArgument (nothing was started), and IoError if the context is broken.
[[nodiscard]] NEZHA_EXPORT Handle gatherAsync(const GatherOptions& options);

/// Runs one gatherv, as gather does, with blocks of unequal lengths. Its algorithm is kDirect.
///
/// Throws InvalidArgument (nothing was started). Throws IoError or TimeoutError (nezha/errors.h),
/// which name the rank, the rail and what was tried, also if ranks disagree on the collective, the
/// root, a number of elements or their type. A rail that dies is no error while another rail joins
/// the same ranks.
NEZHA_EXPORT void gatherv(const GathervOptions& options);

/// Starts one gatherv and returns; the operation continues by itself, as allreduceAsync's does.
/// Throws InvalidArgument (nothing was started), and IoError if the context is broken.
[[nodiscard]] NEZHA_EXPORT Handle gathervAsync(const GathervOptions& options);

}  // namespace nezha
