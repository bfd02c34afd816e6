/// What the options of the collectives have in common.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

#include "nezha/context.h"
#include "nezha/types.h"

namespace nezha {

/// Of every collective. Use that one's own class.
class CollectiveOptions {
 public:
  /// On this context, which must not be null.
  explicit CollectiveOptions(std::shared_ptr<Context> context) : context_(std::move(context)) {}

  /// Tells operations apart that run at the same time on one context. Operations of one tag match
  /// in the order each rank starts them, whichever collectives they are; it must be the same order
  /// on all ranks. Any number but 2^32 - 1, which is nezha's own. Each tag that is used takes a few
  /// bytes for as long as the context lives.
  void setTag(uint32_t tag) { tag_ = tag; }

  /// The deadline of the whole operation, from the call on: more than 0, or the operation is
  /// InvalidArgument; and a year if it is longer. Default: the context's.
  void setTimeout(std::chrono::milliseconds timeout) { timeout_ = timeout; }

 private:
  friend class ContextImpl;

  std::shared_ptr<Context> context_;
  uint32_t tag_ = 0;
  std::optional<std::chrono::milliseconds> timeout_;
};

/// Of those that combine elements: allreduce and reduce.
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
  friend class ContextImpl;

  ReduceOperation operation_ = ReduceOperation::kSum;
  ReduceFunction function_;
  bool commutative_ = true;
};

/// Of those in which one rank is not as the others, the root: reduce and broadcast.
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
    input_ = {data, elements, data_type_of<T>(), true};
  }

  /// Where the result goes: as many elements as the input, of the same type. May be the input
  /// itself; may not overlap it otherwise. Undefined after an error. In a reduce the root has a
  /// result, and others' outputs are not written. In a broadcast every rank has; the root may do
  /// without an output if it has an input.
  template <typename T>
  void setOutput(T* data, size_t elements) {
    output_ = {data, elements, data_type_of<T>(), true};
  }

 private:
  friend class ContextImpl;

  template <typename Pointer>
  struct Vector {
    Pointer data = nullptr;
    size_t elements = 0;
    DataType type = DataType::kFloat32;
    bool is_set = false;
  };
  Vector<const void*> input_;
  Vector<void*> output_;
  int root_ = -1;
};

}  // namespace nezha
