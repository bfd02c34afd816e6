/// allreduce: every rank contributes a vector and every rank gets the element-wise sum, or another
/// reduction.
/// The options read like Gloo's (`gloo/allreduce.h`).
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "nezha/context.h"
#include "nezha/export.h"
#include "nezha/handle.h"
#include "nezha/types.h"

namespace nezha {

/// The algorithms of allreduce over point-to-point connections. Any number of ranks will do for
/// each. Numbers are part of the wire format and never change meaning.
enum class Algorithm : uint8_t {
  /// By size and rank count.
  kAuto = 0,
  /// Reduce-scatter and allgather around a ring; moves the fewest bytes. For large messages.
  kRing = 1,
  /// log2(ranks) exchanges of the whole message. For small messages.
  kRecursiveDoubling = 2,
  /// Reduce-scatter by halving, allgather by doubling, with one peer at a time (Rabenseifner's
  /// algorithm): as few bytes as a ring in 2·log2(ranks) steps if the ranks are a power of two;
  /// other ranks send all they have to one of those first. For medium messages.
  kHalvingDoubling = 3,
  /// Each rank sums one part of the message for all: as few bytes as a ring in two steps, over
  /// connections of all with all. For few ranks.
  kDirect = 4,
  /// Reduce-scatter and allgather in groups of 4 or fewer: between the two above. Gloo has it, too.
  kBcube = 5,
};

class AllreduceOptions {
 public:
  explicit AllreduceOptions(std::shared_ptr<Context> context) : context_(std::move(context)) {}

  /// The vector this rank contributes: `elements` elements at `data`. The memory belongs to the
  /// caller, must stay valid and unwritten until the operation is over, and is not written (unless
  /// it is an output too). Without an input the outputs' contents are the inputs (in place).
  template <typename T>
  void setInput(const T* data, size_t elements) {
    setInputs(std::vector<const T*>{data}, elements);
  }

  /// Several vectors of `elements` elements that this rank contributes: their reduction, in this
  /// order, is its contribution (it takes memory for one more vector). They may be one another.
  template <typename T>
  void setInputs(const std::vector<const T*>& data, size_t elements) {
    inputs_.assign(data.begin(), data.end());
    elements_ = elements;
    type_ = data_type_of<T>();
  }
  template <typename T>
  void setInputs(const std::vector<T*>& data, size_t elements) {
    setInputs(std::vector<const T*>(data.begin(), data.end()), elements);
  }

  /// Where the result goes: as many elements as the input. May be the input itself; may not
  /// overlap it otherwise. Undefined after an error.
  template <typename T>
  void setOutput(T* data, size_t elements) {
    setOutputs(std::vector<T*>{data}, elements);
  }

  /// Several places that the result goes to. They may be inputs; they may not overlap otherwise,
  /// nor each other.
  template <typename T>
  void setOutputs(const std::vector<T*>& data, size_t elements) {
    outputs_.assign(data.begin(), data.end());
    output_elements_ = elements;
    output_type_ = data_type_of<T>();
  }

  /// Default: the sum. The same on every rank, as the element type is.
  void setOperation(ReduceOperation operation) { operation_ = operation; }

  /// Reduces by a function of the caller's own (see ReduceFunction for what it may do), and so sets
  /// the operation to kCustom. It is copied, and called until the allreduce returns or throws.
  void setReduceFunction(ReduceFunction function) {
    function_ = std::move(function);
    operation_ = ReduceOperation::kCustom;
  }

  /// Whether the operation is commutative (the default). If it is not, operands are combined in the
  /// order of the ranks, and of each rank's inputs: over setReproducible's tree. The same on every
  /// rank.
  void setCommutative(bool commutative) { commutative_ = commutative; }

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
  /// fast as without for small messages, and up to a quarter slower for large ones, which the ring
  /// serves best. Where the number of ranks is no power of two, these take connections of all ranks
  /// with all.
  void setReproducible(bool reproducible) { reproducible_ = reproducible; }

  /// Tells operations apart that run at the same time on one context. Operations of one tag match
  /// in the order each rank starts them, which must be the same order on all ranks.
  void setTag(uint32_t tag) { tag_ = tag; }

  /// The deadline of the whole operation, from the call on. Default: the context's.
  void setTimeout(std::chrono::milliseconds timeout) { timeout_ = timeout; }

  /// Must be the same on every rank. Operations of no elements choose their own. If the operation
  /// is reproducible, or not commutative, kRing and kBcube are InvalidArgument.
  void setAlgorithm(Algorithm algorithm) { algorithm_ = algorithm; }

 private:
  friend NEZHA_EXPORT void allreduce(const AllreduceOptions&);
  friend NEZHA_EXPORT Handle allreduceAsync(const AllreduceOptions&);
  friend class ContextImpl;

  std::shared_ptr<Context> context_;
  std::vector<const void*> inputs_;
  std::vector<void*> outputs_;
  size_t elements_ = 0;
  size_t output_elements_ = 0;
  DataType type_ = DataType::kFloat32;
  DataType output_type_ = DataType::kFloat32;
  ReduceOperation operation_ = ReduceOperation::kSum;
  ReduceFunction function_;
  bool commutative_ = true;
  bool reproducible_ = false;
  Algorithm algorithm_ = Algorithm::kAuto;
  uint32_t tag_ = 0;
  std::chrono::milliseconds timeout_{0};  // 0: the context's
};

/// Runs one allreduce and returns when this rank's result is complete. Every rank gets the same
/// bits; for given inputs, algorithm and number of ranks they do not depend on the rails, their
/// shares or their failures (and see AllreduceOptions::setReproducible). Thread-safe.
///
/// Throws InvalidArgument (nothing was started), or IoError / TimeoutError (see there), which name
/// the rank, the rail and what was tried. A rail that dies is no error while another one joins the
/// same ranks.
NEZHA_EXPORT void allreduce(const AllreduceOptions& options);

/// Starts one allreduce and returns. It goes on by itself; several may be in flight, those of one
/// tag in the order of these calls. The first operation with a rank may wait, by itself, for that
/// rank to appear in the store.
///
/// Throws InvalidArgument (nothing was started), and IoError if the context is broken; what goes
/// wrong later is the handle's.
[[nodiscard]] NEZHA_EXPORT Handle allreduceAsync(const AllreduceOptions& options);

}  // namespace nezha
