// SPDX-License-Identifier: Apache-2.0
/// allreduce: every rank contributes a vector and every rank gets the element-wise sum, or another
/// reduction.
/// The options read like Gloo's (`gloo/allreduce.h`).
#pragma once

#include <cstddef>
#include <optional>
#include <utility>
#include <vector>

#include "nezha/algorithm.h"
#include "nezha/collective_options.h"
#include "nezha/export.h"
#include "nezha/handle.h"
#include "nezha/types.h"

namespace nezha {

/// One allreduce: what it reduces, how, and by when. May be used again, also while an operation
/// that was started with it runs. Not thread-safe itself.
class AllreduceOptions : public CollectiveOptions, public ReductionOptions {
 public:
  using CollectiveOptions::CollectiveOptions;

  /// The vector this rank contributes: `elements` elements at `data`. The memory belongs to the
  /// caller, must stay valid and unwritten until the operation is over, and is not written (unless
  /// it is an output too). Without an input the outputs' contents are the inputs (in place).
  template <typename T>
  void setInput(const T* data, size_t elements) {
    setInput(dataTypeOf<T>(), data, elements);
  }
  /// Sets an input of a type that is known at run time only.
  void setInput(DataType type, const void* data, size_t elements) {
    setInputs(type, {data}, elements);
  }

  /// Several vectors of `elements` elements that this rank contributes: their reduction, in this
  /// order, is its contribution (it takes memory for one more vector). They may be one another.
  template <typename T>
  void setInputs(const std::vector<const T*>& data, size_t elements) {
    setInputs(dataTypeOf<T>(), {data.begin(), data.end()}, elements);
  }
  /// Likewise.
  template <typename T>
  void setInputs(const std::vector<T*>& data, size_t elements) {
    setInputs(dataTypeOf<T>(), {data.begin(), data.end()}, elements);
  }
  /// Likewise, of a type that is known at run time only.
  void setInputs(DataType type, std::vector<const void*> data, size_t elements) {
    inputs_ = std::move(data);
    elements_ = elements;
    type_ = type;
  }

  /// Where the result goes: as many elements as the input. May be the input itself; may not
  /// overlap it otherwise. Undefined after an error.
  template <typename T>
  void setOutput(T* data, size_t elements) {
    setOutput(dataTypeOf<T>(), data, elements);
  }
  /// Sets an output of a type that is known at run time only.
  void setOutput(DataType type, void* data, size_t elements) { setOutputs(type, {data}, elements); }

  /// Several places that the result goes to. They may be inputs; they may not overlap otherwise,
  /// nor each other.
  template <typename T>
  void setOutputs(const std::vector<T*>& data, size_t elements) {
    setOutputs(dataTypeOf<T>(), {data.begin(), data.end()}, elements);
  }
  /// Likewise, of a type that is known at run time only.
  void setOutputs(DataType type, std::vector<void*> data, size_t elements) {
    outputs_ = std::move(data);
    output_elements_ = elements;
    output_type_ = type;
  }

  /// Whether an element's bits depend on nothing but the ranks' values of this element, the type,
  /// the operation and the number of ranks (by default they may depend on the algorithm, too, and
  /// by that on the message's length and the element's place in it). So they are the same in every
  /// run, however a vector is cut into messages. The same on every rank, or it is an error.
  ///
  /// The order is that of a binary tree over the ranks, from left to right: with p the largest
  /// power of two <= n, first the first n-p pairs of neighbours are combined (0 and 1, 2 and 3,
  /// ...); of the p operands that leaves, neighbours are, until there is one. With 6 ranks:
  /// ((0+1)+(2+3))+(4+5). Before that a rank's inputs are combined from the first to the last;
  /// after it an average is divided. Each combination is rounded as ReduceOperation says. A
  /// function of the user's own must give an element the same bits wherever in its call it is.
  ///
  /// It takes kRecursiveDoubling, kHalvingDoubling or kDirect, which kAuto then chooses from: as
  /// fast as without for small messages, and slower for large ones (by a third where it was
  /// measured), which the ring serves best. Where the number of ranks is no power of two, these
  /// take connections of all ranks with all. A `flare:` rail carries no such operation: the hosts
  /// do it, and the log (NEZHA_LOG=info) says so once.
  void setReproducible(bool reproducible) { reproducible_ = reproducible; }

  /// Must be the same on every rank. Operations of no elements choose their own. If the operation
  /// is reproducible, or not commutative, kRing and kBcube are InvalidArgument. Default:
  /// NEZHA_ALGORITHM of the environment of rank 0, or kAuto.
  void setAlgorithm(Algorithm algorithm) { algorithm_ = algorithm; }

 private:
  friend class RequestMaker;

  std::vector<const void*> inputs_;
  std::vector<void*> outputs_;
  size_t elements_ = 0;
  size_t output_elements_ = 0;
  DataType type_ = DataType::kFloat32;
  DataType output_type_ = DataType::kFloat32;
  bool reproducible_ = false;
  std::optional<Algorithm> algorithm_;
};

/// Runs one allreduce and returns when this rank's result is complete. Every rank gets the same
/// bits; for given inputs, algorithm and number of ranks they do not depend on the rails, their
/// shares or their failures (and see AllreduceOptions::setReproducible). What a switch adds up, in
/// a context with a `flare:` rail, is the same on all ranks too, but in floating point its bits
/// depend on the order in which the ranks' parts reach the switch, and so differ from run to run;
/// those of minima, maxima and integers do not, nor those of a reproducible operation, nor what the
/// same switches add up by a rail with `?reproducible=1`. Thread-safe.
///
/// Throws InvalidArgument (nothing was started; a null context is one, too), or IoError /
/// TimeoutError (see there), which name the rank, the rail and what was tried. A rail that dies is
/// no error while another one joins the same ranks.
///
/// Where a rank dies or gives up late in an operation, some ranks may have completed it, with the
/// right result, while it fails on others: their next operation fails. A program that goes on after
/// an error has the ranks agree on which operation was the last.
///
/// Ranks that call different things by one tag (size, type, operation, algorithm) all get an
/// IoError that says which rank called what: at once where they exchange data with each other, and
/// else after half a second. (A rank that comes when those that know have closed their contexts
/// learns no more than that they are gone.)
NEZHA_EXPORT void allreduce(const AllreduceOptions& options);

/// Starts one allreduce and returns. It goes on by itself; several may be in flight, those of one
/// tag in the order of these calls. The first operation with a rank may wait, by itself, for that
/// rank to appear in the store.
///
/// Throws InvalidArgument (nothing was started; a null context is one, too), and IoError if the
/// context is broken; what goes wrong later is the handle's.
[[nodiscard]] NEZHA_EXPORT Handle allreduceAsync(const AllreduceOptions& options);

}  // namespace nezha
