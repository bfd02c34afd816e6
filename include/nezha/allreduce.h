/// allreduce: every rank contributes a vector and every rank gets the element-wise sum.
/// The options read like Gloo's (`gloo/allreduce.h`).
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "nezha/context.h"
#include "nezha/export.h"
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
  /// Each rank sums one part of the message for all, in the order of ranks: as few bytes as a ring
  /// in two steps, over connections of all with all. For few ranks, and for functions that do not
  /// commute.
  kDirect = 4,
  /// Reduce-scatter and allgather in groups of 4 or fewer: between the two above. Gloo has it, too.
  kBcube = 5,
};

class AllreduceOptions {
 public:
  explicit AllreduceOptions(std::shared_ptr<Context> context) : context_(std::move(context)) {}

  /// The vector this rank contributes: `elements` elements at `data`. The memory belongs to the
  /// caller, must stay valid and unwritten until the call returns, and is not written (unless it
  /// is the output too). Without an input the output's contents are the input (in place).
  template <typename T>
  void setInput(const T* data, size_t elements) {
    input_ = data;
    elements_ = elements;
    type_ = data_type_of<T>();
  }

  /// Where the result goes: as many elements as the input. May be the input itself; may not
  /// overlap it otherwise.
  template <typename T>
  void setOutput(T* data, size_t elements) {
    output_ = data;
    output_elements_ = elements;
    output_type_ = data_type_of<T>();
  }

  void setOperation(ReduceOperation operation) { operation_ = operation; }

  /// Tells operations apart that run at the same time on one context. Operations of one tag match
  /// in the order each rank starts them, which must be the same order on all ranks.
  void setTag(uint32_t tag) { tag_ = tag; }

  /// The deadline of the whole operation, from the call on. Default: the context's.
  void setTimeout(std::chrono::milliseconds timeout) { timeout_ = timeout; }

  /// Must be the same on every rank.
  void setAlgorithm(Algorithm algorithm) { algorithm_ = algorithm; }

 private:
  friend NEZHA_EXPORT void allreduce(const AllreduceOptions&);
  friend class ContextImpl;

  std::shared_ptr<Context> context_;
  const void* input_ = nullptr;
  void* output_ = nullptr;
  size_t elements_ = 0;
  size_t output_elements_ = 0;
  DataType type_ = DataType::kFloat32;
  DataType output_type_ = DataType::kFloat32;
  ReduceOperation operation_ = ReduceOperation::kSum;
  Algorithm algorithm_ = Algorithm::kAuto;
  uint32_t tag_ = 0;
  std::chrono::milliseconds timeout_{0};  // 0: the context's
};

/// Runs one allreduce and returns when this rank's result is complete. Every rank gets the same
/// bits; for given inputs, algorithm and number of ranks they do not depend on the rails, their
/// shares or their failures. Thread-safe.
///
/// Throws InvalidArgument (nothing was started), or IoError / TimeoutError (see there), which name
/// the rank, the rail and what was tried. A rail that dies is no error while another one joins the
/// same ranks.
NEZHA_EXPORT void allreduce(const AllreduceOptions& options);

}  // namespace nezha
