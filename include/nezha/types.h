/// Element types and reduction operations.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace nezha {

/// The element types. Numbers are part of the wire format and never change meaning.
enum class DataType : uint8_t {
  kFloat32 = 1,
};

/// The reductions. Numbers are part of the wire format and never change meaning.
enum class ReduceOperation : uint8_t {
  kSum = 1,
};

/// Bytes per element.
constexpr size_t size_of(DataType) { return 4; }

/// The DataType of a C++ type; does not compile for types that have none.
template <typename T>
constexpr DataType data_type_of() {
  static_assert(std::is_same_v<T, float>, "nezha has no reduction for this element type");
  return DataType::kFloat32;
}

}  // namespace nezha
