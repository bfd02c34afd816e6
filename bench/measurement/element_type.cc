// SPDX-License-Identifier: Apache-2.0
#include "bench/measurement/element_type.h"

namespace nezha::bench {
namespace {

// The numbers of types and of operations begin at 1 and have no gap.
template <typename Number>
std::vector<std::string> names(Number end) {
  std::vector<std::string> all;
  for (int number = 1; number < static_cast<int>(end); ++number) {
    all.emplace_back(nameOf(static_cast<Number>(number)));
  }
  return all;
}

template <typename Number>
Number number_of(const std::string& name, const std::vector<std::string>& names) {
  for (size_t i = 0; i < names.size(); ++i) {
    if (names[i] == name) return static_cast<Number>(i + 1);
  }
  return static_cast<Number>(1);
}

constexpr auto kTypesEnd = static_cast<DataType>(static_cast<int>(DataType::kFloat64) + 1);

}  // namespace

std::vector<std::string> type_names() { return names(kTypesEnd); }

std::vector<std::string> operation_names() { return names(ReduceOperation::kCustom); }

DataType to_type(const std::string& name) { return number_of<DataType>(name, type_names()); }

ReduceOperation to_operation(const std::string& name) {
  return number_of<ReduceOperation>(name, operation_names());
}

}  // namespace nezha::bench
