// SPDX-License-Identifier: Apache-2.0
/// reduce_scatter: every rank contributes a vector with one block per rank, and every rank gets its
/// own block of the element-wise sum, or of another reduction. The options read like Gloo's
/// (`gloo/reduce_scatter.h`).
#pragma once

#include <cstddef>
#include <utility>
#include <vector>

#include "nezha/collective_options.h"
#include "nezha/export.h"
#include "nezha/handle.h"

namespace nezha {

/// One reduce_scatter. The input has all blocks, either of equal lengths or with counts that are
/// the same on every rank. The output is this rank's block of the result. The output may be where
/// this rank's block of the input is (in place, as NCCL has it), or at the beginning of the input
/// (as MPI has it, which takes memory for one more block). The input is overwritten there.
///
/// The options may be used again, even while an operation that was started with them runs. They are
/// not thread-safe.
class ReduceScatterOptions : public BlocksOptions, public ReductionOptions {
 public:
  using BlocksOptions::BlocksOptions;
  using BlocksOptions::setInput;
  using BlocksOptions::setOutput;

  /// Sets the input as BlocksOptions::setInput does, for elements that can be added up.
  template <typename T>
  void setInput(const T* data, size_t elements) {
    setInput(dataTypeOf<T>(), data, elements);
  }
  /// Sets the input as BlocksOptions::setInput with counts does, for elements that can be added up.
  template <typename T>
  void setInput(const T* data, std::vector<size_t> counts) {
    setInput(dataTypeOf<T>(), data, std::move(counts));
  }
  /// Sets the output as BlocksOptions::setOutput does, for elements that can be added up.
  template <typename T>
  void setOutput(T* data, size_t elements) {
    setOutput(dataTypeOf<T>(), data, elements);
  }

  /// Sets whether the result is reproducible (AllreduceOptions::setReproducible). The order of
  /// summation is the same, so the bits are those of a reproducible allreduce. Reproducible
  /// operations go by kDirect.
  void setReproducible(bool reproducible) { reproducible_ = reproducible; }

 private:
  friend class RequestMaker;

  bool reproducible_ = false;
};

/// Runs one reduce_scatter. Returns when this rank's result is complete and its input is no longer
/// read. For given inputs, algorithm and number of ranks the bits do not depend on the rails, their
/// shares or their failures. The operation goes over all rails of the context, by stripes.
/// Thread-safe.
///
/// Algorithms: kHalvingDoubling (its first half) for small messages, kRing for large ones, and
/// kDirect, which reproducible operations and those that are not commutative use. The ring takes a
/// few MiB of memory. kHalvingDoubling takes half of the input's size, or up to two and a half
/// times the input's size if the number of ranks is no power of two. kDirect takes as much as all
/// other ranks' parts of this rank's block.
///
/// Throws InvalidArgument (nothing was started). Throws IoError or TimeoutError (nezha/errors.h),
/// which name the rank, the rail and what was tried, also if ranks disagree on the collective, the
/// operation, the number of elements or their type. A rail that dies is no error while another rail
/// joins the same ranks.
NEZHA_EXPORT void reduceScatter(const ReduceScatterOptions& options);

/// Starts one reduce_scatter and returns; the operation continues by itself, as allreduceAsync's
/// does. Throws InvalidArgument (nothing was started), and IoError if the context is broken.
[[nodiscard]] NEZHA_EXPORT Handle reduceScatterAsync(const ReduceScatterOptions& options);

}  // namespace nezha
