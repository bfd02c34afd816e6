// SPDX-License-Identifier: Apache-2.0
/// Element types and reduction operations.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <type_traits>

#include "nezha/float16.h"

namespace gloo {
struct float16;
}

/// All that the library offers to programs.
namespace nezha {

/// The element types. Numbers are part of the wire format and never change meaning.
enum class DataType : uint8_t {
  kFloat32 = 1,    ///< float: IEEE 754 binary32
  kUint8 = 2,      ///< unsigned, 1 byte
  kInt8 = 3,       ///< signed, two's complement as all signed ones are, 1 byte
  kInt16 = 4,      ///< signed, 2 bytes
  kUint16 = 5,     ///< unsigned, 2 bytes
  kInt32 = 6,      ///< signed, 4 bytes
  kUint32 = 7,     ///< unsigned, 4 bytes
  kInt64 = 8,      ///< signed, 8 bytes
  kUint64 = 9,     ///< unsigned, 8 bytes
  kFloat16 = 10,   ///< Float16: IEEE 754 binary16
  kBFloat16 = 11,  ///< BFloat16: the upper half of a binary32
  kFloat64 = 12,   ///< double: IEEE 754 binary64
};

/// The reductions, element by element. Numbers are part of the wire format and never change
/// meaning.
///
/// Integers: a sum or product that overflows wraps around, modulo 2^bits, also of signed types.
/// Floating point: kFloat16 and kBFloat16 are computed in float, and each operation's result is
/// rounded to the nearest, ties to even. A result that is NaN is always the positive quiet NaN
/// whose other bits are zero; so NaNs, too, are the same bits on all ranks, whatever their CPUs.
/// (The one input of a context's only rank is its result as it is.)
/// The floating-point environment is taken to be the default one.
enum class ReduceOperation : uint8_t {
  /// The elements' sum, in the order of the algorithm.
  kSum = 1,
  /// Their product, likewise.
  kProduct = 2,
  /// Of floating-point numbers the IEEE 754-2019 minimum: NaN if any element is, and -0 < +0.
  kMin = 3,
  /// Likewise the IEEE 754-2019 maximum: NaN if any element is, and +0 > -0.
  kMax = 4,
  /// The sum, as kSum has it, divided by the number of ranks once at the end. Integers: towards
  /// zero. What overflows in the sum is lost: float16 above 65504, integers by wrapping.
  kAverage = 5,
  /// The user's own function (AllreduceOptions::setReduceFunction).
  kCustom = 6,
};

/// A user's own reduction, as Gloo's are: out[i] = a[i] op b[i] for `elements` elements of the
/// operation's type. It must be associative, commutative too unless
/// AllreduceOptions::setCommutative(false) says otherwise, and the same on every rank. `out` may be
/// the same memory as `a` or as `b`, and the memory may be aligned to elements only.
///
/// It is called by any thread that waits in nezha, also for another operation, by one at a time,
/// and under a lock of nezha's; and to combine several inputs of this rank by the thread that
/// starts the operation, while it may run in others. So it must not call nezha, not wait for
/// another thread, and take no longer than its work does: meanwhile nothing of the process is sent
/// or received. If it throws, the operation fails as it does when a rank dies (IoError): on all
/// ranks but those that needed nothing of this one any more, and whose next operation fails
/// instead.
using ReduceFunction =
    std::function<void(void* out, const void* a, const void* b, size_t elements)>;

/// The type's name; null for a number that is none.
constexpr const char* nameOf(DataType type) {
  switch (type) {
    case DataType::kFloat32:
      return "float32";
    case DataType::kUint8:
      return "uint8";
    case DataType::kInt8:
      return "int8";
    case DataType::kInt16:
      return "int16";
    case DataType::kUint16:
      return "uint16";
    case DataType::kInt32:
      return "int32";
    case DataType::kUint32:
      return "uint32";
    case DataType::kInt64:
      return "int64";
    case DataType::kUint64:
      return "uint64";
    case DataType::kFloat16:
      return "float16";
    case DataType::kBFloat16:
      return "bfloat16";
    case DataType::kFloat64:
      return "float64";
  }
  return nullptr;
}

/// The operation's name; null for a number that is none.
constexpr const char* nameOf(ReduceOperation operation) {
  switch (operation) {
    case ReduceOperation::kSum:
      return "sum";
    case ReduceOperation::kProduct:
      return "product";
    case ReduceOperation::kMin:
      return "min";
    case ReduceOperation::kMax:
      return "max";
    case ReduceOperation::kAverage:
      return "average";
    case ReduceOperation::kCustom:
      return "custom";
  }
  return nullptr;
}

/// Bytes per element; 0 for a number that is no type.
constexpr size_t sizeOf(DataType type) {
  switch (type) {
    case DataType::kUint8:
    case DataType::kInt8:
      return 1;
    case DataType::kInt16:
    case DataType::kUint16:
    case DataType::kFloat16:
    case DataType::kBFloat16:
      return 2;
    case DataType::kFloat32:
    case DataType::kInt32:
    case DataType::kUint32:
      return 4;
    case DataType::kInt64:
    case DataType::kUint64:
    case DataType::kFloat64:
      return 8;
  }
  return 0;
}

/// Whether dataTypeOf has a DataType for the C++ type.
template <typename T>
constexpr bool hasDataType() {
  return std::is_same_v<T, float> || std::is_same_v<T, double> || std::is_same_v<T, Float16> ||
         std::is_same_v<T, ::gloo::float16> || std::is_same_v<T, BFloat16> ||
         (std::is_integral_v<T> && !std::is_same_v<T, bool> && sizeof(T) <= 8);
}

/// The DataType of a C++ type: of every integer but bool by its size and sign, of float, double,
/// Float16, BFloat16 and gloo::float16. Does not compile for types that have none.
template <typename T>
constexpr DataType dataTypeOf() {
  if constexpr (std::is_same_v<T, float>) {
    return DataType::kFloat32;
  } else if constexpr (std::is_same_v<T, double>) {
    return DataType::kFloat64;
  } else if constexpr (std::is_same_v<T, Float16> || std::is_same_v<T, ::gloo::float16>) {
    return DataType::kFloat16;
  } else if constexpr (std::is_same_v<T, BFloat16>) {
    return DataType::kBFloat16;
  } else {
    static_assert(hasDataType<T>(), "nezha has no reduction for this element type");
    constexpr bool kSigned = std::is_signed_v<T>;
    switch (sizeof(T)) {
      case 1:
        return kSigned ? DataType::kInt8 : DataType::kUint8;
      case 2:
        return kSigned ? DataType::kInt16 : DataType::kUint16;
      case 4:
        return kSigned ? DataType::kInt32 : DataType::kUint32;
      default:
        return kSigned ? DataType::kInt64 : DataType::kUint64;
    }
  }
}

}  // namespace nezha
