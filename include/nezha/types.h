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
  kInt8 = 3,       ///< signed, 1 byte (two's complement, as all signed types)
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
/// Integers: a sum or product that overflows wraps around, modulo 2^bits, also in signed types.
///
/// Floating point: kFloat16 and kBFloat16 are computed in float, and the result of each operation
/// is rounded to the nearest, ties to even. A NaN result is always the positive quiet NaN whose
/// other bits are zero, so NaNs have the same bits on all ranks, whatever their CPUs. (In a context
/// of one rank, a single input becomes the result unchanged.) nezha assumes the default
/// floating-point environment.
enum class ReduceOperation : uint8_t {
  /// The sum of the elements, in the order that the algorithm has.
  kSum = 1,
  /// The product of the elements, in the order that the algorithm has.
  kProduct = 2,
  /// The minimum; of floating-point numbers that of IEEE 754-2019: NaN if any element is NaN, and
  /// -0 < +0.
  kMin = 3,
  /// The maximum; of floating-point numbers that of IEEE 754-2019: NaN if any element is NaN, and
  /// +0 > -0.
  kMax = 4,
  /// The sum, computed as by kSum, and divided once at the end by the number of ranks. Integer
  /// quotients are rounded towards zero. If the sum overflows, the average is lost: float16
  /// overflows above 65504, and integers wrap around.
  kAverage = 5,
  /// The user's own function (AllreduceOptions::setReduceFunction).
  kCustom = 6,
};

/// A user's own reduction, in Gloo's form: out[i] = a[i] op b[i] for `elements` elements of the
/// operation's type. It must be associative, and the same on every rank. It must also be
/// commutative unless AllreduceOptions::setCommutative(false) says otherwise. `out` may be the same
/// memory as `a` or as `b`. The memory may be aligned to elements only.
///
/// Any thread that waits in nezha may call the function, even one that waits for another operation.
/// Such calls come one at a time, and under a lock of nezha's. To combine several inputs of this
/// rank, the thread that starts the operation calls the function, possibly while other threads run
/// it. The function must therefore not call nezha, must not wait for another thread, and must take
/// no longer than its work does: meanwhile the process sends and receives nothing. If it throws,
/// the operation fails as if this rank had died (IoError). It fails on all ranks except those that
/// needed nothing more of this rank, and on these the next operation fails instead.
using ReduceFunction =
    std::function<void(void* out, const void* a, const void* b, size_t elements)>;

/// Returns the type's name; null if the number is no type.
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

/// Returns the operation's name; null if the number is no operation.
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

/// Returns the bytes per element; 0 if the number is no type.
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

/// Returns whether dataTypeOf has a DataType for the C++ type.
template <typename T>
constexpr bool hasDataType() {
  return std::is_same_v<T, float> || std::is_same_v<T, double> || std::is_same_v<T, Float16> ||
         std::is_same_v<T, ::gloo::float16> || std::is_same_v<T, BFloat16> ||
         (std::is_integral_v<T> && !std::is_same_v<T, bool> && sizeof(T) <= 8);
}

/// Returns the DataType of a C++ type: of every integer except bool by its size and sign, and of
/// float, double, Float16, BFloat16 and gloo::float16. Does not compile for types that have none.
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
