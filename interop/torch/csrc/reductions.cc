// SPDX-License-Identifier: Apache-2.0
#include "interop/torch/csrc/reductions.h"

#include <c10/util/Exception.h>

#include <functional>
#include <string>

#include "interop/torch/csrc/tensors.h"
#include "interop/torch/csrc/unrecorded.h"
#include "interop/torch/csrc/version.h"

namespace nezha_torch {
namespace {

using c10d::ReduceOp;
using nezha::DataType;
using nezha::ReduceOperation;

template <typename T, typename Op>
void combine(void* out, const void* a, const void* b, size_t elements) {
  const auto* left = static_cast<const T*>(a);
  const auto* right = static_cast<const T*>(b);
  auto* result = static_cast<T*>(out);
  for (size_t i = 0; i < elements; ++i) result[i] = static_cast<T>(Op()(left[i], right[i]));
}

// Returns a bitwise operation on integers of that many bytes, signed or not.
template <typename Op>
nezha::ReduceFunction bitwise(size_t bytes) {
  switch (bytes) {
    case 1:
      return combine<uint8_t, Op>;
    case 2:
      return combine<uint16_t, Op>;
    case 4:
      return combine<uint32_t, Op>;
    default:
      return combine<uint64_t, Op>;
  }
}

nezha::ReduceFunction bitwise(ReduceOp::RedOpType op, size_t bytes) {
  if (op == ReduceOp::BAND) return bitwise<std::bit_and<>>(bytes);
  if (op == ReduceOp::BOR) return bitwise<std::bit_or<>>(bytes);
  return bitwise<std::bit_xor<>>(bytes);
}

const char* name(ReduceOp::RedOpType op) {
  static const char* const kNames[] = {"SUM",  "AVG", "PRODUCT", "MIN",       "MAX",
                                       "BAND", "BOR", "BXOR",    "PREMUL_SUM"};
  return op <= ReduceOp::PREMUL_SUM ? kNames[op] : "an unknown operation";
}

[[noreturn]] void refuse(const char* caller, ReduceOp::RedOpType op, at::ScalarType type) {
  C10_THROW_ERROR(Error, c10::str(caller, ": ReduceOp.", name(op),
                                  " is not defined for tensors of type ", c10::toString(type)));
}

Reduction of_booleans(const char* caller, ReduceOp::RedOpType op) {
  switch (op) {
    case ReduceOp::SUM:
    case ReduceOp::MAX:
    case ReduceOp::BOR:
      return {DataType::kUint8, 1, ReduceOperation::kMax, nullptr};
    case ReduceOp::PRODUCT:
    case ReduceOp::MIN:
    case ReduceOp::BAND:
      return {DataType::kUint8, 1, ReduceOperation::kMin, nullptr};
    case ReduceOp::BXOR:
      return {DataType::kUint8, 1, ReduceOperation::kCustom, bitwise(op, 1)};
    default:
      refuse(caller, op, at::kBool);
  }
}

}  // namespace

Reduction reduction(const char* caller, const ReduceOp& full, at::ScalarType type) {
  const ReduceOp::RedOpType op = full;
  if (type == at::kBool) return of_booleans(caller, op);
  const bool is_number = c10::isFloatingType(type) || c10::isComplexType(type) ||
                         c10::isIntegralType(type, /*includeBool=*/false);
  const auto [moved_type, factor] = moved(type);
  // Types that are moved as bytes are not numbers to nezha, except the byte itself.
  if (!is_number || (moved_type == DataType::kUint8 && type != at::kByte)) refuse(caller, op, type);
  const bool is_linear = op == ReduceOp::SUM || op == ReduceOp::AVG || op == ReduceOp::PREMUL_SUM;
  if (c10::isComplexType(type) && !is_linear) refuse(caller, op, type);
  switch (op) {
    case ReduceOp::SUM:
    case ReduceOp::PREMUL_SUM:
      return {moved_type, factor, ReduceOperation::kSum, nullptr};
    case ReduceOp::AVG:
      return {moved_type, factor, ReduceOperation::kAverage, nullptr};
    case ReduceOp::PRODUCT:
      return {moved_type, factor, ReduceOperation::kProduct, nullptr};
    case ReduceOp::MIN:
      return {moved_type, factor, ReduceOperation::kMin, nullptr};
    case ReduceOp::MAX:
      return {moved_type, factor, ReduceOperation::kMax, nullptr};
    case ReduceOp::BAND:
    case ReduceOp::BOR:
    case ReduceOp::BXOR:
      if (!c10::isIntegralType(type, false)) refuse(caller, op, type);
      return {moved_type, factor, ReduceOperation::kCustom, bitwise(op, c10::elementSize(type))};
    default:
      refuse(caller, op, type);
  }
}

at::Tensor contribution(const ReduceOp& op, const at::Tensor& tensor) {
  if (op.op_ != ReduceOp::PREMUL_SUM) return tensor;
  const auto* supplement = static_cast<const c10d::NCCLPreMulSumSupplement*>(op.supplement_.get());
  TORCH_CHECK(supplement != nullptr, "ReduceOp.PREMUL_SUM has no factor");
#if NEZHA_TORCH_AT_LEAST(2, 0)
  const bool is_tensor = supplement->tensor_factor.defined();
  const at::Tensor factor = is_tensor ? supplement->tensor_factor : at::Tensor();
#else
  const bool is_tensor = !supplement->tensor_factors.empty();
  const at::Tensor factor = is_tensor ? supplement->tensor_factors.front() : at::Tensor();
#endif
  const Unrecorded unrecorded;
  const at::Tensor product = is_tensor ? tensor.mul(factor) : tensor.mul(supplement->double_factor);
  return product.to(tensor.scalar_type());
}

}  // namespace nezha_torch
