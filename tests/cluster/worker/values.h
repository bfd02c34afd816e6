// SPDX-License-Identifier: Apache-2.0
// The inputs, which every rank can recompute, and how they are combined.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>

#include "nezha/float16.h"
#include "nezha/types.h"

namespace nezha::worker {

inline uint32_t mix(uint32_t x) {
  x ^= x >> 16;
  x *= 0x7feb352dU;
  x ^= x >> 15;
  x *= 0x846ca68bU;
  return x ^ (x >> 16);
}

// The input of one rank to one operation. A shifted, stale, doubled or missing element changes the
// sum.
class Input {
 public:
  Input(int rank, int operation, int tag)
      : base_(mix(mix(mix(static_cast<uint32_t>(rank) + 1) + static_cast<uint32_t>(operation)) +
                  static_cast<uint32_t>(tag))) {}

  // 1 to `most`, a power of two.
  uint32_t small(size_t element, uint32_t most) const {
    return (bits(element) >> 8) / ((1U << 24) / most) + 1;
  }

  // Values of many magnitudes and both signs, so that the sum's bits show the order of summation.
  float any(size_t element) const {
    static constexpr float kScales[] = {1e-10F, 1e-9F, 3e-8F, 1e-7F, 1e-6F, 3e-4F, 0.1F, 1e3F};
    const uint32_t x = bits(element);
    return static_cast<float>(static_cast<int32_t>(x)) * kScales[mix(x) % 8];
  }

 private:
  uint32_t bits(size_t element) const {
    uint32_t x = static_cast<uint32_t>(element) * 0x9e3779b1U + base_;
    x = (x ^ (x >> 15)) * 0x2c1b3c6dU;
    return x ^ (x >> 12);
  }

  uint32_t base_;
};

template <typename T>
constexpr bool kIsShort = std::is_same_v<T, nezha::Float16> || std::is_same_v<T, nezha::BFloat16>;

// The type in which the test computes with T. With these inputs no operation rounds, in any order;
// integers wrap around.
template <typename T>
using Wide = std::conditional_t<std::is_integral_v<T>, uint64_t, double>;

template <typename T>
T narrow(Wide<T> value) {
  if constexpr (kIsShort<T>) {
    return T(static_cast<float>(value));
  } else {
    return static_cast<T>(value);
  }
}

template <typename T>
Wide<T> wide(T value) {
  if constexpr (kIsShort<T>) {
    return static_cast<float>(value);
  } else {
    return static_cast<Wide<T>>(value);
  }
}

// How a reduction combines two elements.
enum class Fold { kAdd, kMultiply, kMin, kMax };
inline Fold fold_of(const std::string& reduction) {
  if (reduction == "min") return Fold::kMin;
  if (reduction == "max") return Fold::kMax;
  return reduction == "product" ? Fold::kMultiply : Fold::kAdd;
}

template <typename T>
Wide<T> combine(Fold fold, Wide<T> a, Wide<T> b) {
  if (fold == Fold::kMin) return std::min(a, b);
  if (fold == Fold::kMax) return std::max(a, b);
  return fold == Fold::kMultiply ? a * b : a + b;
}

// All inputs are positive. The quotient is computed in the precision that nezha uses, so that it is
// rounded alike.
template <typename T>
T average(Wide<T> sum, int ranks) {
  if constexpr (std::is_integral_v<T>) {
    return static_cast<T>(sum / static_cast<uint64_t>(ranks));
  } else if constexpr (std::is_same_v<T, double>) {
    return sum / ranks;
  } else {
    return narrow<T>(static_cast<double>(static_cast<float>(sum) / static_cast<float>(ranks)));
  }
}

// An element of a rank's input. Sums over 8 ranks are exact in all types.
template <typename T>
T element_of(const Input& input, Fold fold, size_t element) {
  if (fold == Fold::kMultiply && !std::is_integral_v<T>) {
    return narrow<T>(static_cast<Wide<T>>(input.small(element, 2)));  // 1 or 2
  }
  constexpr uint32_t kMost = sizeof(T) == 1 ? 8 : sizeof(T) == 2 ? 16 : 1024;
  return narrow<T>(static_cast<Wide<T>>(input.small(element, kMost)));
}

template <typename T>
void add(void* out, const void* a, const void* b, size_t elements) {
  for (size_t i = 0; i < elements; ++i) {
    const T x = static_cast<const T*>(a)[i];
    const T y = static_cast<const T*>(b)[i];
    static_cast<T*>(out)[i] = narrow<T>(wide(x) + wide(y));
  }
}

// The C++ type for each DataType.
template <typename F>
void with_type(nezha::DataType type, const F& f) {
  switch (type) {
    case nezha::DataType::kUint8:
      return f(uint8_t{});
    case nezha::DataType::kInt8:
      return f(int8_t{});
    case nezha::DataType::kUint16:
      return f(uint16_t{});
    case nezha::DataType::kInt16:
      return f(int16_t{});
    case nezha::DataType::kUint32:
      return f(uint32_t{});
    case nezha::DataType::kInt32:
      return f(int32_t{});
    case nezha::DataType::kUint64:
      return f(uint64_t{});
    case nezha::DataType::kInt64:
      return f(int64_t{});
    case nezha::DataType::kFloat16:
      return f(nezha::Float16{});
    case nezha::DataType::kBFloat16:
      return f(nezha::BFloat16{});
    case nezha::DataType::kFloat32:
      return f(float{});
    case nezha::DataType::kFloat64:
      return f(double{});
  }
}

}  // namespace nezha::worker
