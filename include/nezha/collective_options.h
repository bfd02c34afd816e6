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

/// Not for users: how elements that are not added up are told to the library.
namespace detail {

/// The type of such elements: that of bytes where dataTypeOf() knows none.
template <typename T>
constexpr DataType moved_type() {
  if constexpr (hasDataType<T>()) {
    return dataTypeOf<T>();
  } else {
    static_assert(std::is_trivially_copyable_v<T>, "elements are copied byte by byte");
    return DataType::kUint8;
  }
}

/// How many elements of that type they are. If these are more than memory has, the operation
/// refuses them.
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

/// Of every collective. Use that one's own class.
class CollectiveOptions {
 public:
  /// On this context, which must not be null.
  explicit CollectiveOptions(std::shared_ptr<Context> context) : context_(std::move(context)) {}

  /// Tells operations apart that run at the same time on one context. Operations of one tag match
  /// in the order each rank starts them, whichever collectives they are; it must be the same order
  /// on all ranks. Any number but 2^32 - 1, which is nezha's own. A program may use each tag once:
  /// tags that follow each other, as a counter's do, take no memory once their operations are over.
  /// A tag whose neighbours are not used as often takes some 50 bytes for as long as the context
  /// lives.
  void setTag(uint32_t tag) { tag_ = tag; }

  /// The deadline of the whole operation, from the call on: more than 0, or the operation is
  /// InvalidArgument; and a year if it is longer. Default: the context's.
  void setTimeout(std::chrono::milliseconds timeout) { timeout_ = timeout; }

 private:
  friend class RequestMaker;

  std::shared_ptr<Context> context_;
  uint32_t tag_ = 0;
  std::optional<std::chrono::milliseconds> timeout_;
};

/// Of those that combine elements: allreduce, reduce and reduce_scatter.
class ReductionOptions {
 public:
  /// Default: the sum. The same on every rank, as the element type is.
  void setOperation(ReduceOperation operation) { operation_ = operation; }

  /// Reduces by a function of the caller's own (see ReduceFunction for what it may do), and so sets
  /// the operation to kCustom. It is copied, and called until the collective returns or throws.
  void setReduceFunction(ReduceFunction function) {
    function_ = std::move(function);
    operation_ = ReduceOperation::kCustom;
  }

  /// Whether the operation is commutative (the default). If it is not, operands are combined in the
  /// order of the ranks, and of each rank's inputs: in an allreduce over the tree of
  /// AllreduceOptions::setReproducible. The same on every rank.
  void setCommutative(bool commutative) { commutative_ = commutative; }

 private:
  friend class RequestMaker;

  ReduceOperation operation_ = ReduceOperation::kSum;
  ReduceFunction function_;
  bool commutative_ = true;
};

/// Of those in which one rank is not as the others, the root: reduce and broadcast. Elements that
/// are added up are of the types that dataTypeOf() knows. All others are of any trivially copyable
/// type, which moves as bytes.
class RootedOptions : public CollectiveOptions {
 public:
  using CollectiveOptions::CollectiveOptions;

  /// The rank that a reduce's result goes to, or that a broadcast's vector is of. The same on every
  /// rank; must be given.
  void setRoot(int root) { root_ = root; }

  /// The vector this rank contributes: `elements` elements at `data`. In a broadcast the root does,
  /// and others' inputs are ignored. The memory belongs to the caller, must stay valid and
  /// unwritten until the operation is over, and is not written (unless it is an output too).
  /// Without an input the output's contents are the input (in place).
  template <typename T>
  void setInput(const T* data, size_t elements) {
    setInput(detail::moved_type<T>(), data, detail::moved_elements<T>(elements));
  }
  /// Sets an input of a type that is known at run time only.
  void setInput(DataType type, const void* data, size_t elements) {
    set_inputs(type, {data}, elements);
  }

  /// Where the result goes: as many elements as the input, of the same type. May be the input
  /// itself; may not overlap it otherwise. Undefined after an error. In a reduce the root has a
  /// result, and others' outputs are not written. In a broadcast every rank has; the root may do
  /// without an output if it has an input.
  template <typename T>
  void setOutput(T* data, size_t elements) {
    setOutput(detail::moved_type<T>(), data, detail::moved_elements<T>(elements));
  }
  /// Sets an output of a type that is known at run time only.
  void setOutput(DataType type, void* data, size_t elements) {
    output_ = {data, elements, type, true};
  }

  /// The same on every rank. One that the collective does not have is InvalidArgument. Default:
  /// kAuto.
  void setAlgorithm(Algorithm algorithm) { algorithm_ = algorithm; }

 protected:
  /// Sets inputs whose reduction is this rank's input. None: as if no input had been set.
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

/// The options of the collectives in which a vector is made of a block for each rank, in the order
/// of the ranks. Use each collective's own class, which says what its input and its output are: one
/// block, or all blocks.
///
/// Elements that are added up are of the types that dataTypeOf() knows. All others are of any
/// trivially copyable type, which moves as bytes. The memory belongs to the caller. An input must
/// stay valid and unwritten until the operation is over, and is not written. An output may be where
/// the same block or blocks of the input are, and may not overlap the input otherwise; it is
/// undefined after an error.
class BlocksOptions : public CollectiveOptions {
 public:
  using CollectiveOptions::CollectiveOptions;

  /// Sets an input of `elements` elements at `data`: a block, or all blocks, of equal lengths.
  template <typename T>
  void setInput(const T* data, size_t elements) {
    input_ = vector<T, const void*>(data, elements);
  }
  /// Sets an input of all blocks, of unequal lengths: `counts[r]` elements for rank r, which may be
  /// 0.
  template <typename T>
  void setInput(const T* data, std::vector<size_t> counts) {
    input_ = vector<T, const void*>(data, std::move(counts));
  }
  /// Sets an input of a type that is known at run time only.
  void setInput(DataType type, const void* data, size_t elements) {
    input_ = {data, type, elements, {}, false, true};
  }
  /// Sets an input of such a type, of blocks of unequal lengths.
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

  /// The same on every rank. One that the collective does not have is InvalidArgument. Default:
  /// kAuto.
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
