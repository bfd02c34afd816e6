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

/// One allreduce: what it reduces, how, and by when. The options may be used again, even while an
/// operation that was started with them runs. They are not thread-safe.
class AllreduceOptions : public CollectiveOptions, public ReductionOptions {
 public:
  using CollectiveOptions::CollectiveOptions;

  /// Sets the vector that this rank contributes: `elements` elements at `data`. The memory belongs
  /// to the caller. It must stay valid and unwritten until the operation is over; nezha does not
  /// write to it (unless it is an output too). Without an input, the contents of the outputs are
  /// the inputs (in place).
  template <typename T>
  void setInput(const T* data, size_t elements) {
    setInput(dataTypeOf<T>(), data, elements);
  }
  /// Sets an input of a type that is known at run time only.
  void setInput(DataType type, const void* data, size_t elements) {
    setInputs(type, {data}, elements);
  }

  /// Sets several vectors of `elements` elements that this rank contributes. Their reduction, in
  /// this order, is its contribution (which takes memory for one more vector). The same vector may
  /// be there more than once.
  template <typename T>
  void setInputs(const std::vector<const T*>& data, size_t elements) {
    setInputs(dataTypeOf<T>(), {data.begin(), data.end()}, elements);
  }
  /// Sets several inputs in the same way.
  template <typename T>
  void setInputs(const std::vector<T*>& data, size_t elements) {
    setInputs(dataTypeOf<T>(), {data.begin(), data.end()}, elements);
  }
  /// Sets several inputs of a type that is known at run time only.
  void setInputs(DataType type, std::vector<const void*> data, size_t elements) {
    inputs_ = std::move(data);
    elements_ = elements;
    type_ = type;
  }

  /// Sets where the result goes: as many elements as the input. The output may be the input itself,
  /// and may not overlap it otherwise. Its contents are undefined after an error.
  template <typename T>
  void setOutput(T* data, size_t elements) {
    setOutput(dataTypeOf<T>(), data, elements);
  }
  /// Sets an output of a type that is known at run time only.
  void setOutput(DataType type, void* data, size_t elements) { setOutputs(type, {data}, elements); }

  /// Sets several places that the result goes to. Each may be one of the inputs. They may not
  /// overlap inputs otherwise, nor each other.
  template <typename T>
  void setOutputs(const std::vector<T*>& data, size_t elements) {
    setOutputs(dataTypeOf<T>(), {data.begin(), data.end()}, elements);
  }
  /// Sets several outputs of a type that is known at run time only.
  void setOutputs(DataType type, std::vector<void*> data, size_t elements) {
    outputs_ = std::move(data);
    output_elements_ = elements;
    output_type_ = type;
  }

  /// Sets whether the result is reproducible. The bits of an element then depend only on the ranks'
  /// values of this element, the type, the operation and the number of ranks. They are the same in
  /// every run, however a vector is cut into messages. By default they may also depend on the
  /// algorithm, and thereby on the message's length and the element's place in it. It is an error
  /// if ranks differ in this.
  ///
  /// The order of combination is that of a binary tree over the n ranks, from left to right. Let p
  /// be the largest power of two <= n. First, the first n-p pairs of neighbours are combined (0 and
  /// 1, 2 and 3, ...), which leaves p operands. Then neighbouring operands are combined until one
  /// is left. With 6 ranks: ((0+1)+(2+3))+(4+5). Before that a rank's inputs are combined from the
  /// first to the last; after it an average is divided. Each combination is rounded as
  /// ReduceOperation says. A function of the user's own must give an element the same bits wherever
  /// in its call the element is.
  ///
  /// Reproducible operations go by kRecursiveDoubling, kHalvingDoubling or kDirect, and kAuto
  /// chooses among these. Small messages take no longer than without this option. Large messages,
  /// which the ring serves best, take longer. If the number of
  /// ranks is no power of two, these algorithms connect all ranks with all. A `flare:` rail carries
  /// no such operation: the hosts carry it, and the log (NEZHA_LOG=info) says so once.
  void setReproducible(bool reproducible) { reproducible_ = reproducible; }

  /// Sets the algorithm, which must be the same on every rank. Operations without elements choose
  /// their own. If the operation is reproducible, or not commutative, kRing and kBcube are
  /// InvalidArgument. Default: NEZHA_ALGORITHM in the environment of rank 0, or kAuto.
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
/// bits. For given inputs, algorithm and number of ranks the bits do not depend on the rails, their
/// shares or their failures (see also AllreduceOptions::setReproducible). In a context with a
/// `flare:` rail, all ranks get the same bits of what a switch adds up, too. But floating-point
/// bits depend on the order in which the ranks' parts reach the switch, and so differ from run to
/// run. The bits of minima, maxima and integers do not, nor those of a reproducible operation, nor
/// what the same switches add up by a rail with `?reproducible=1`. Thread-safe.
///
/// Throws InvalidArgument (nothing was started), also if the context is null. Throws IoError or
/// TimeoutError (nezha/errors.h), which name the rank, the rail and what was tried. A rail that
/// dies is no error while another rail joins the same ranks.
///
/// If a rank dies or gives up late in an operation, the operation may fail on some ranks and
/// complete on others, with the right result. The next operation of those others fails. A program
/// that goes on after an error must have the ranks agree on which operation was the last.
///
/// If ranks call different things with one tag (size, type, operation, algorithm), all of them get
/// an IoError that says which rank called what. Ranks that exchange data with each other get it at
/// once, and others after half a second. (A rank that comes when those that know have closed their
/// contexts learns only that they are gone.)
NEZHA_EXPORT void allreduce(const AllreduceOptions& options);

/// Starts one allreduce and returns; the operation continues by itself. Several may be in flight;
/// those with one tag match in the order of these calls. The first operation with a rank may wait,
/// by itself, for that rank to appear in the store.
///
/// Throws InvalidArgument (nothing was started), also if the context is null, and IoError if the
/// context is broken. The handle reports what goes wrong later.
[[nodiscard]] NEZHA_EXPORT Handle allreduceAsync(const AllreduceOptions& options);

}  // namespace nezha
