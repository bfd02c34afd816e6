// SPDX-License-Identifier: Apache-2.0
/// scatter: one rank, the root, has a block for each rank, and every rank gets its own block.
/// The options read like Gloo's (`gloo/scatter.h`).
#pragma once

#include "nezha/collective_options.h"
#include "nezha/export.h"
#include "nezha/handle.h"

namespace nezha {

/// One scatter. The root's input has all blocks; the inputs of other ranks are ignored. The output
/// is this rank's block, which has the same number of elements on every rank. The root may do
/// without an output.
///
/// The options may be used again, even while an operation that was started with them runs. They are
/// not thread-safe.
class ScatterOptions : public BlocksOptions {
 public:
  using BlocksOptions::BlocksOptions;

  /// Sets the rank that has the blocks. It must be given, and must be the same on every rank.
  void setRoot(int root) { root_ = root; }
};

/// One scatterv: a scatter of blocks of unequal lengths, which the counts of the root's input give.
///
/// The options may be used again, even while an operation that was started with them runs. They are
/// not thread-safe.
class ScattervOptions : public BlocksOptions {
 public:
  using BlocksOptions::BlocksOptions;

  /// Sets the rank that has the blocks. It must be given, and must be the same on every rank.
  void setRoot(int root) { root_ = root; }
};

/// Runs one scatter. Returns on a rank when its block is complete, and at the root when its input
/// is no longer read. No rank returns before its left neighbour, the rank before it, has called it,
/// too. Algorithms: kTree for small messages, in which ranks that pass blocks on take memory for
/// all blocks, and kDirect for large ones. The operation goes over all rails of the context, by
/// stripes. Thread-safe.
///
/// Throws InvalidArgument (nothing was started). Throws IoError or TimeoutError (nezha/errors.h),
/// which name the rank, the rail and what was tried, also if ranks disagree on the collective, the
/// root, the number of elements or their type. A rail that dies is no error while another rail
/// joins the same ranks.
NEZHA_EXPORT void scatter(const ScatterOptions& options);

/// Starts one scatter and returns; the operation continues by itself, as allreduceAsync's does.
/// Throws InvalidArgument (nothing was started), and IoError if the context is broken.
[[nodiscard]] NEZHA_EXPORT Handle scatterAsync(const ScatterOptions& options);

/// Runs one scatterv, as scatter does, with blocks of unequal lengths. Its algorithm is kDirect.
///
/// Throws InvalidArgument (nothing was started). Throws IoError or TimeoutError (nezha/errors.h),
/// which name the rank, the rail and what was tried, also if ranks disagree on the collective, the
/// root, a number of elements or their type. A rail that dies is no error while another rail joins
/// the same ranks.
NEZHA_EXPORT void scatterv(const ScattervOptions& options);

/// Starts one scatterv and returns; the operation continues by itself, as allreduceAsync's does.
/// Throws InvalidArgument (nothing was started), and IoError if the context is broken.
[[nodiscard]] NEZHA_EXPORT Handle scattervAsync(const ScattervOptions& options);

}  // namespace nezha
