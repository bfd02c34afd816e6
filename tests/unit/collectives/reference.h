// SPDX-License-Identifier: Apache-2.0
// Reference reductions, one element at a time, that use none of nezha's kernels.
#pragma once

#include <array>
#include <bit>
#include <cmath>
#include <concepts>
#include <cstdint>
#include <cstring>
#include <limits>
#include <span>
#include <type_traits>
#include <vector>

#include "nezha/types.h"

namespace nezha::reference {

inline constexpr std::array kOperations = {ReduceOperation::kSum, ReduceOperation::kProduct,
                                           ReduceOperation::kMin, ReduceOperation::kMax,
                                           ReduceOperation::kAverage};

template <typename T>
uint64_t bits_of(T value) {
  uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof value);
  return bits;
}

// The first index at which the bits differ, or the size if none do.
template <typename T>
size_t first_difference(const std::vector<T>& a, const std::vector<T>& b) {
  if (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0) return a.size();
  size_t i = 0;
  while (bits_of(a[i]) == bits_of(b[i])) ++i;
  return i;
}

template <typename T>
constexpr bool kIsShort = std::is_same_v<T, Float16> || std::is_same_v<T, BFloat16>;

template <std::floating_point T>
T one_nan(T value) {
  return std::isnan(value) ? std::numeric_limits<T>::quiet_NaN() : value;
}

template <std::floating_point T>
T combine(ReduceOperation operation, T a, T b) {
  constexpr T kNan = std::numeric_limits<T>::quiet_NaN();
  const bool any_nan = std::isnan(a) || std::isnan(b);
  const bool a_is_less = a < b || (a == b && std::signbit(a));
  switch (operation) {
    case ReduceOperation::kSum:
    case ReduceOperation::kAverage:
      return one_nan(a + b);
    case ReduceOperation::kProduct:
      return one_nan(a * b);
    case ReduceOperation::kMin:
      return any_nan ? kNan : a_is_less ? a : b;
    case ReduceOperation::kMax:
      return any_nan ? kNan : a_is_less ? b : a;
    case ReduceOperation::kCustom:
      break;
  }
  return -1;
}

template <std::integral T>
T combine(ReduceOperation operation, T a, T b) {
  switch (operation) {
    case ReduceOperation::kSum:
    case ReduceOperation::kAverage:
      return static_cast<T>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
    case ReduceOperation::kProduct:
      return static_cast<T>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b));
    case ReduceOperation::kMin:
      return a < b ? a : b;
    case ReduceOperation::kMax:
      return a < b ? b : a;
    case ReduceOperation::kCustom:
      break;
  }
  return 0;
}

template <typename T>
requires kIsShort<T> T combine(ReduceOperation operation, T a, T b) {
  return T(combine(operation, static_cast<float>(a), static_cast<float>(b)));
}

template <typename T>
T divide(T value, int ranks) {
  if constexpr (kIsShort<T>) {
    return T(divide(static_cast<float>(value), ranks));
  } else if constexpr (std::floating_point<T>) {
    return one_nan(value / static_cast<T>(ranks));
  } else if constexpr (std::is_signed_v<T>) {
    return static_cast<T>(int64_t{value} / ranks);
  } else {
    return static_cast<T>(uint64_t{value} / static_cast<uint64_t>(ranks));
  }
}

}  // namespace nezha::reference

namespace nezha {

// Sums these operands, in their order, over the tree of ranks.
template <typename T>
T over_tree_of(ReduceOperation operation, std::span<const T> operands) {
  const size_t leaves = std::bit_floor(operands.size());
  const size_t folded = operands.size() - leaves;
  std::array<T, 64> sums;
  for (size_t i = 0; i < leaves; ++i) {
    sums.at(i) = i < folded ? reference::combine(operation, operands[2 * i], operands[2 * i + 1])
                            : operands[i + folded];
  }
  for (size_t count = leaves / 2; count > 0; count /= 2) {
    for (size_t i = 0; i < count; ++i) {
      sums.at(i) = reference::combine(operation, sums.at(2 * i), sums.at(2 * i + 1));
    }
  }
  return sums[0];
}
template <typename T>
T over_tree(ReduceOperation operation, const std::vector<T>& operands) {
  return over_tree_of(operation, std::span(operands));
}

}  // namespace nezha
