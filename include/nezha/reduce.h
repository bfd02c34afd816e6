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

/// One reduce: what it reduces, how, to which rank, and by when. May be used again, also while an
/// operation that was started with it runs. Not thread-safe itself.
class ReduceOptions : public RootedOptions, public ReductionOptions {
 public:
  using RootedOptions::RootedOptions;
  using RootedOptions::setInput;
  using RootedOptions::setOutput;

  /// As RootedOptions::setInput, of elements that can be added up.
  template <typename T>
  void setInput(const T* data, size_t elements) {
    setInput(dataTypeOf<T>(), data, elements);
  }
  /// As RootedOptions::setOutput, of elements that can be added up.
  template <typename T>
  void setOutput(T* data, size_t elements) {
    setOutput(dataTypeOf<T>(), data, elements);
  }

  /// Several vectors of `elements` elements that this rank contributes: their reduction, in this
  /// order, is its contribution (it takes memory for one more vector). They may be one another.
  template <typename T>
  void setInputs(const std::vector<const T*>& data, size_t elements) {
    set_inputs(dataTypeOf<T>(), {data.begin(), data.end()}, elements);
  }
  /// Likewise.
  template <typename T>
  void setInputs(const std::vector<T*>& data, size_t elements) {
    set_inputs(dataTypeOf<T>(), {data.begin(), data.end()}, elements);
  }
  /// Likewise, of a type that is known at run time only.
  void setInputs(DataType type, std::vector<const void*> data, size_t elements) {
    set_inputs(type, std::move(data), elements);
  }

  /// As AllreduceOptions::setReproducible, with the same order of summation, and so the same bits
  /// as a reproducible allreduce has, whichever rank is the root. It takes kDirect.
  void setReproducible(bool reproducible) { reproducible_ = reproducible; }

 private:
  friend class RequestMaker;

  bool reproducible_ = false;
};

/// Runs one reduce. Returns at the root when the result is complete, and on another rank when its
/// input is no longer read; the result may not be complete by then. For given inputs, root and
/// number of ranks its bits do not depend on the rails, their shares or their failures. Algorithms:
/// kTree for small vectors; kRing, in segments from rank to rank, for large ones, in about the time
/// that one rank takes to send its vector once; and kDirect, in about the time of an allreduce,
/// which reproducible operations take, and large ones that are not commutative. In a context with a
/// `flare:` rail it returns, on all ranks, only when all have called it, and the bits of what a
/// switch adds up depend on the order of arrival there. Thread-safe.
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
