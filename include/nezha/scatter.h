// SPDX-License-Identifier: Apache-2.0
/// scatter: one rank, the root, has a block for each rank, and every rank gets its own.
/// The options read like Gloo's (`gloo/scatter.h`).
#pragma once

#include "nezha/collective_options.h"
#include "nezha/export.h"
#include "nezha/handle.h"

namespace nezha {

/// One scatter. The root's input has all blocks, and others' inputs are ignored. The output is this
/// rank's block, of as many elements on every rank; the root may do without one.
///
/// May be used again, also while an operation that was started with it runs. Not thread-safe
/// itself.
class ScatterOptions : public BlocksOptions {
 public:
  using BlocksOptions::BlocksOptions;

  /// The rank that has the blocks. The same on every rank; must be given.
  void setRoot(int root) { root_ = root; }
};

/// One scatterv: a scatter of blocks of unequal lengths, which the counts of the root's input give.
///
/// May be used again, also while an operation that was started with it runs. Not thread-safe
/// itself.
class ScattervOptions : public BlocksOptions {
 public:
  using BlocksOptions::BlocksOptions;

  /// The rank that has the blocks. The same on every rank; must be given.
  void setRoot(int root) { root_ = root; }
};

/// Runs one scatter. Returns on a rank when its block is complete, and at the root when its input
/// is no longer read; and on each of them once its left neighbour, the rank before it, has called
/// it, too. Algorithms: kTree for small messages, by which ranks that pass blocks on take memory
/// for all blocks, and kDirect for large ones. It goes over all rails of the context, by stripes.
/// Thread-safe.
///
/// Throws InvalidArgument (nothing was started), or IoError / TimeoutError (see there), which name
/// the rank, the rail and what was tried; also if ranks disagree on the collective, the root, the
/// number of elements or their type. A rail that dies is no error while another one joins the same
/// ranks.
NEZHA_EXPORT void scatter(const ScatterOptions& options);

/// Starts one scatter and returns. It goes on by itself, as allreduceAsync's does, and throws as
/// that: InvalidArgument (nothing was started), and IoError if the context is broken.
[[nodiscard]] NEZHA_EXPORT Handle scatterAsync(const ScatterOptions& options);

/// As scatter, of blocks of unequal lengths. Its algorithm is kDirect.
///
/// Throws InvalidArgument (nothing was started), or IoError / TimeoutError (see there), which name
/// the rank, the rail and what was tried; also if ranks disagree on the collective, the root, a
/// number of elements or their type. A rail that dies is no error while another one joins the same
/// ranks.
NEZHA_EXPORT void scatterv(const ScattervOptions& options);

/// Starts one scatterv and returns. It goes on by itself, as allreduceAsync's does, and throws as
/// that: InvalidArgument (nothing was started), and IoError if the context is broken.
[[nodiscard]] NEZHA_EXPORT Handle scattervAsync(const ScattervOptions& options);

}  // namespace nezha
