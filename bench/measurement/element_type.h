// SPDX-License-Identifier: Apache-2.0
// Element types as C++ types, and the names of types and operations.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "nezha/float16.h"
#include "nezha/types.h"

namespace nezha::bench {

// The C++ type of an element type.
template <typename T>
struct TypeTag {
  using Type = T;
};

// Returns body(TypeTag<T>()), where T is the C++ type of `type`.
template <typename Body>
auto with_type(DataType type, const Body& body) {
  switch (type) {
    case DataType::kUint8:
      return body(TypeTag<uint8_t>());
    case DataType::kInt8:
      return body(TypeTag<int8_t>());
    case DataType::kInt16:
      return body(TypeTag<int16_t>());
    case DataType::kUint16:
      return body(TypeTag<uint16_t>());
    case DataType::kInt32:
      return body(TypeTag<int32_t>());
    case DataType::kUint32:
      return body(TypeTag<uint32_t>());
    case DataType::kInt64:
      return body(TypeTag<int64_t>());
    case DataType::kUint64:
      return body(TypeTag<uint64_t>());
    case DataType::kFloat16:
      return body(TypeTag<Float16>());
    case DataType::kBFloat16:
      return body(TypeTag<BFloat16>());
    case DataType::kFloat64:
      return body(TypeTag<double>());
    case DataType::kFloat32:
      break;
  }
  return body(TypeTag<float>());
}

// These return the names of all types and operations that the library has, without the user's own
// reductions.
std::vector<std::string> type_names();
std::vector<std::string> operation_names();

// Returns the type or the operation of that name. An empty name gives float32 or the sum:
// collectives without elements have no type, and those that combine nothing have no operation.
DataType to_type(const std::string& name);
ReduceOperation to_operation(const std::string& name);

}  // namespace nezha::bench
