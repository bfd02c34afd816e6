// SPDX-License-Identifier: Apache-2.0
/// reduce: every rank contributes a vector, and one rank, the root, gets the element-wise sum, or
/// another reduction.
/// The options read like Gloo's (`gloo/reduce.h`).
#pragma once

#include <utility>
#include <vector>

#include "nezha/collective_options.h"
#include "nezha/export.h"
#include "nezha/handle.h"

namespace nezha {

/// One reduce: what it reduces, how, to which rank, and by when. The options may be used again,
/// even while an operation that was started with them runs. They are not thread-safe.
class ReduceOptions : public RootedOptions, public ReductionOptions {
 public:
  using RootedOptions::RootedOptions;
  using RootedOptions::setInput;
  using RootedOptions::setOutput;

  /// Sets the input as RootedOptions::setInput does, for elements that can be added up.
  template <typename T>
  void setInput(const T* data, size_t elements) {
    setInput(dataTypeOf<T>(), data, elements);
  }
  /// Sets the output as RootedOptions::setOutput does, for elements that can be added up.
  template <typename T>
  void setOutput(T* data, size_t elements) {
    setOutput(dataTypeOf<T>(), data, elements);
  }

  /// Sets several vectors of `elements` elements that this rank contributes. Their reduction, in
  /// this order, is its contribution (which takes memory for one more vector). The same vector may
  /// be there more than once.
  template <typename T>
  void setInputs(const std::vector<const T*>& data, size_t elements) {
    set_inputs(dataTypeOf<T>(), {data.begin(), data.end()}, elements);
  }
  /// Sets several inputs in the same way.
  template <typename T>
  void setInputs(const std::vector<T*>& data, size_t elements) {
    set_inputs(dataTypeOf<T>(), {data.begin(), data.end()}, elements);
  }
  /// Sets several inputs of a type that is known at run time only.
  void setInputs(DataType type, std::vector<const void*> data, size_t elements) {
    set_inputs(type, std::move(data), elements);
  }

  /// Sets whether the result is reproducible (AllreduceOptions::setReproducible). The order of
  /// summation is the same, so the bits are those of a reproducible allreduce, whichever rank is
  /// the root. Reproducible operations go by kDirect.
  void setReproducible(bool reproducible) { reproducible_ = reproducible; }

 private:
  friend class RequestMaker;

  bool reproducible_ = false;
};

/// Runs one reduce. Returns at the root when the result is complete, and on another rank when its
/// input is no longer read; the result may not be complete by then. For given inputs, root and
/// number of ranks the bits of the result do not depend on the rails, their shares or their
/// failures. Thread-safe.
///
/// Algorithms: kTree for small vectors, kRing for large ones, and kDirect. kRing passes segments
/// from rank to rank, in about the time that one rank takes to send its vector once. kDirect takes
/// about the time of an allreduce. Reproducible operations use it, and so do large ones that are
/// not commutative. In a context with a `flare:` rail a reduce returns, on all ranks, only when all
/// have called it, and the bits of what a switch adds up depend on the order in which the parts
/// arrive there.
///
/// Throws InvalidArgument (nothing was started). Throws IoError or TimeoutError (nezha/errors.h),
/// which name the rank, the rail and what was tried, also if ranks disagree on the collective, the
/// root, the operation, the number of elements or their type. A rail that dies is no error while
/// another rail joins the same ranks.
NEZHA_EXPORT void reduce(const ReduceOptions& options);

/// Starts one reduce and returns; the operation continues by itself, as allreduceAsync's does.
/// Throws InvalidArgument (nothing was started), and IoError if the context is broken.
[[nodiscard]] NEZHA_EXPORT Handle reduceAsync(const ReduceOptions& options);

}  // namespace nezha
