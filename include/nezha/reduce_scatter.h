// SPDX-License-Identifier: Apache-2.0
/// reduce_scatter: every rank contributes a vector of a block for each rank, and every rank gets
/// its own block of the element-wise sum, or of another reduction. The options read like Gloo's
/// (`gloo/reduce_scatter.h`).
#pragma once

#include <cstddef>
#include <utility>
#include <vector>

#include "nezha/collective_options.h"
#include "nezha/export.h"
#include "nezha/handle.h"

namespace nezha {

/// One reduce_scatter. The input has all blocks, of equal lengths or with counts that are the same
/// on every rank, and the output is this rank's block of the result. The output may be this rank's
/// block of the input (in place, as NCCL has it), or be at the input's begin (as MPI has it, which
/// takes memory for one more block); the input is overwritten there.
///
/// May be used again, also while an operation that was started with it runs. Not thread-safe
/// itself.
class ReduceScatterOptions : public BlocksOptions, public ReductionOptions {
 public:
  using BlocksOptions::BlocksOptions;
  using BlocksOptions::setInput;
  using BlocksOptions::setOutput;

  /// As BlocksOptions::setInput, of elements that can be added up.
  template <typename T>
  void setInput(const T* data, size_t elements) {
    setInput(dataTypeOf<T>(), data, elements);
  }
  /// As BlocksOptions::setInput with counts, of elements that can be added up.
  template <typename T>
  void setInput(const T* data, std::vector<size_t> counts) {
    setInput(dataTypeOf<T>(), data, std::move(counts));
  }
  /// As BlocksOptions::setOutput, of elements that can be added up.
  template <typename T>
  void setOutput(T* data, size_t elements) {
    setOutput(dataTypeOf<T>(), data, elements);
  }

  /// As AllreduceOptions::setReproducible, with the same order of summation, and so the same bits
  /// as a reproducible allreduce has. It takes kDirect.
  void setReproducible(bool reproducible) { reproducible_ = reproducible; }

 private:
  friend class RequestMaker;

  bool reproducible_ = false;
};

/// Runs one reduce_scatter. Returns when this rank's result is complete and its input is no longer
/// read. For given inputs, algorithm and number of ranks the bits do not depend on the rails, their
/// shares or their failures. Algorithms: kHalvingDoubling, of which it takes the first half, for
/// small messages, kRing for large ones, and kDirect, which reproducible operations and those that
/// are not commutative take. The ring takes a few MiB of memory; kHalvingDoubling takes half of the
/// input's size (where the number of ranks is no power of two, up to two and a half times it), and
/// kDirect as much as all other ranks' parts of this rank's block. It goes over all rails of the
/// context, by stripes. Thread-safe.
///
/// Throws InvalidArgument (nothing was started), or IoError / TimeoutError (see there), which name
/// the rank, the rail and what was tried; also if ranks disagree on the collective, the operation,
/// the number of elements or their type. A rail that dies is no error while another one joins the
/// same ranks.
NEZHA_EXPORT void reduceScatter(const ReduceScatterOptions& options);

/// Starts one reduce_scatter and returns. It goes on by itself, as allreduceAsync's does, and
/// throws as that: InvalidArgument (nothing was started), and IoError if the context is broken.
[[nodiscard]] NEZHA_EXPORT Handle reduceScatterAsync(const ReduceScatterOptions& options);

}  // namespace nezha
