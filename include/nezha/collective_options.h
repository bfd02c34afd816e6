// SPDX-License-Identifier: Apache-2.0
/// What the options of the collectives have in common.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

#include "nezha/algorithm.h"
#include "nezha/context.h"
#include "nezha/types.h"

namespace nezha {

/// How the options describe elements that are only moved, not added up. Programs do not use this
/// namespace.
namespace detail {

/// Returns the type of such elements: dataTypeOf() where it knows one, and otherwise that of bytes.
template <typename T>
constexpr DataType moved_type() {
  if constexpr (hasDataType<T>()) {
    return dataTypeOf<T>();
  } else {
    static_assert(std::is_trivially_copyable_v<T>, "elements are copied byte by byte");
    return DataType::kUint8;
  }
}

/// Returns how many elements of that type they are. The operation refuses more elements than memory
/// can have.
template <typename T>
constexpr size_t moved_elements(size_t elements) {
  if constexpr (hasDataType<T>()) {
    return elements;
  } else {
    const size_t most = std::numeric_limits<size_t>::max();
    return elements > most / sizeof(T) ? most : elements * sizeof(T);
  }
}

}  // namespace detail

/// The options that every collective has. Use the collective's own class.
class CollectiveOptions {
 public:
  /// Options of an operation on this context, which must not be null.
  explicit CollectiveOptions(std::shared_ptr<Context> context) : context_(std::move(context)) {}

  /// Sets the tag, which tells apart operations that run at the same time on one context.
  /// Operations with the same tag match in the order in which each rank starts them, whichever
  /// collectives they are, and that order must be the same on all ranks. It may be any number
  /// except 2^32 - 1, which is nezha's own.
  ///
  /// A program may also give each operation a new tag. Consecutive tags, such as a counter's, take
  /// no memory once their operations are over. A tag whose neighbours are not used as often takes
  /// some 50 bytes for as long as the context lives.
  void setTag(uint32_t tag) { tag_ = tag; }

  /// Sets the deadline of the whole operation, counted from the call. It must be more than 0, or
  /// the call throws InvalidArgument; more than a year counts as a year. Default: the context's.
  void setTimeout(std::chrono::milliseconds timeout) { timeout_ = timeout; }

 private:
  friend class RequestMaker;

  std::shared_ptr<Context> context_;
  uint32_t tag_ = 0;
  std::optional<std::chrono::milliseconds> timeout_;
};

/// The options of the collectives that combine elements: allreduce, reduce and reduce_scatter.
class ReductionOptions {
 public:
  /// Sets the operation. It must be the same on every rank, as must the element type. Default: the
  /// sum.
  void setOperation(ReduceOperation operation) { operation_ = operation; }

  /// Reduces by a function of the caller's own, and so sets the operation to kCustom.
  /// ReduceFunction says what the function may do. The function is copied, and is called until the
  /// collective returns or throws.
  void setReduceFunction(ReduceFunction function) {
    function_ = std::move(function);
    operation_ = ReduceOperation::kCustom;
  }

  /// Sets whether the operation is commutative, which is the default. If it is not, the operands
  /// are combined in the order of the ranks, and those of one rank in the order of its inputs. An
  /// allreduce then uses the tree of AllreduceOptions::setReproducible. The setting must be the
  /// same on every rank.
  void setCommutative(bool commutative) { commutative_ = commutative; }

 private:
  friend class RequestMaker;

  ReduceOperation operation_ = ReduceOperation::kSum;
  ReduceFunction function_;
  bool commutative_ = true;
};

/// The options of reduce and broadcast, in which one rank, the root, differs from the others. A
/// reduce takes elements of the types that dataTypeOf() knows. A broadcast takes elements of any
/// trivially copyable type, and moves them as bytes.
class RootedOptions : public CollectiveOptions {
 public:
  using CollectiveOptions::CollectiveOptions;

  /// Sets the rank that gets a reduce's result, or whose vector is broadcast. It must be given, and
  /// must be the same on every rank.
  void setRoot(int root) { root_ = root; }

  /// Sets the vector that this rank contributes: `elements` elements at `data`. In a broadcast only
  /// the root contributes, and the inputs of other ranks are ignored. The memory belongs to the
  /// caller. It must stay valid and unwritten until the operation is over; nezha does not write to
  /// it (unless it is an output too). Without an input, the contents of the output are the input
  /// (in place).
  template <typename T>
  void setInput(const T* data, size_t elements) {
    setInput(detail::moved_type<T>(), data, detail::moved_elements<T>(elements));
  }
  /// Sets an input of a type that is known at run time only.
  void setInput(DataType type, const void* data, size_t elements) {
    set_inputs(type, {data}, elements);
  }

  /// Sets where the result goes: as many elements as the input, of the same type. The output may be
  /// the input itself, and may not overlap it otherwise. Its contents are undefined after an error.
  /// In a reduce only the root has a result, and the outputs of other ranks are not written. In a
  /// broadcast every rank has one; the root may do without an output if it has an input.
  template <typename T>
  void setOutput(T* data, size_t elements) {
    setOutput(detail::moved_type<T>(), data, detail::moved_elements<T>(elements));
  }
  /// Sets an output of a type that is known at run time only.
  void setOutput(DataType type, void* data, size_t elements) {
    output_ = {data, elements, type, true};
  }

  /// Sets the algorithm, which must be the same on every rank. The collective throws
  /// InvalidArgument if it does not have the algorithm. Default: kAuto.
  void setAlgorithm(Algorithm algorithm) { algorithm_ = algorithm; }

 protected:
  /// Sets inputs whose reduction is this rank's input. An empty list counts as no input.
  void set_inputs(DataType type, std::vector<const void*> data, size_t elements) {
    const bool is_set = !data.empty();
    input_ = {std::move(data), elements, type, is_set};
  }

 private:
  friend class RequestMaker;

  template <typename Data>
  struct Vector {
    Data data{};
    size_t elements = 0;
    DataType type = DataType::kFloat32;
    bool is_set = false;
  };
  Vector<std::vector<const void*>> input_;
  Vector<void*> output_;
  int root_ = -1;
  Algorithm algorithm_ = Algorithm::kAuto;
};

/// The options of the collectives in which a vector consists of one block per rank, in the order of
/// the ranks. Use each collective's own class, which says whether its input and its output are one
/// block or all blocks.
///
/// Collectives that add up take elements of the types that dataTypeOf() knows. The others take
/// elements of any trivially copyable type, and move them as bytes. The memory belongs to the
/// caller. An input must stay valid and unwritten until the operation is over, and nezha does not
/// write to it. An output may be where the same block or blocks of the input are, and may not
/// overlap the input otherwise. Its contents are undefined after an error.
class BlocksOptions : public CollectiveOptions {
 public:
  using CollectiveOptions::CollectiveOptions;

  /// Sets an input of `elements` elements at `data`: one block, or all blocks if they have equal
  /// lengths.
  template <typename T>
  void setInput(const T* data, size_t elements) {
    input_ = vector<T, const void*>(data, elements);
  }
  /// Sets an input of all blocks, of unequal lengths: `counts[r]` elements for rank r. A count may
  /// be 0.
  template <typename T>
  void setInput(const T* data, std::vector<size_t> counts) {
    input_ = vector<T, const void*>(data, std::move(counts));
  }
  /// Sets an input of a type that is known at run time only.
  void setInput(DataType type, const void* data, size_t elements) {
    input_ = {data, type, elements, {}, false, true};
  }
  /// Sets an input of a type that is known at run time only, of blocks of unequal lengths.
  void setInput(DataType type, const void* data, std::vector<size_t> counts) {
    input_ = {data, type, 0, std::move(counts), true, true};
  }

  /// Sets the output in the same way.
  template <typename T>
  void setOutput(T* data, size_t elements) {
    output_ = vector<T, void*>(data, elements);
  }
  /// Sets the output in the same way.
  template <typename T>
  void setOutput(T* data, std::vector<size_t> counts) {
    output_ = vector<T, void*>(data, std::move(counts));
  }
  /// Sets the output in the same way.
  void setOutput(DataType type, void* data, size_t elements) {
    output_ = {data, type, elements, {}, false, true};
  }
  /// Sets the output in the same way.
  void setOutput(DataType type, void* data, std::vector<size_t> counts) {
    output_ = {data, type, 0, std::move(counts), true, true};
  }

  /// Sets the algorithm, which must be the same on every rank. The collective throws
  /// InvalidArgument if it does not have the algorithm. Default: kAuto.
  void setAlgorithm(Algorithm algorithm) { algorithm_ = algorithm; }

 protected:
  /// The root, if the collective has one.
  int root_ = -1;

 private:
  friend class RequestMaker;

  template <typename Pointer>
  struct Vector {
    Pointer data = nullptr;
    DataType type = DataType::kUint8;
    size_t elements = 0;
    std::vector<size_t> counts;
    bool has_counts = false;
    bool is_set = false;
  };

  template <typename T, typename Pointer>
  static Vector<Pointer> vector(Pointer data, size_t elements) {
    return {data, detail::moved_type<T>(), detail::moved_elements<T>(elements), {}, false, true};
  }
  template <typename T, typename Pointer>
  static Vector<Pointer> vector(Pointer data, std::vector<size_t> counts) {
    auto made = vector<T, Pointer>(data, 0);
    for (size_t& count : counts) count = detail::moved_elements<T>(count);
    made.counts = std::move(counts);
    made.has_counts = true;
    return made;
  }

  Vector<const void*> input_;
  Vector<void*> output_;
  Algorithm algorithm_ = Algorithm::kAuto;
};

}  // namespace nezha
