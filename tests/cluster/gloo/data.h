// SPDX-License-Identifier: Apache-2.0
// Contents of buffers that every rank can compute. Lost, doubled, stale or swapped parts change
// them.
#pragma once

#include <gloo/types.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>
#include <vector>

#include "cluster/gloo/outcome.h"

namespace nezha::gloo_cases {

inline uint64_t mix(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
  return x ^ (x >> 31);
}

// The vector of one rank in one operation. Sums of 48 elements are exact in all types; integers
// wrap.
template <typename T>
class Values {
 public:
  Values(uint64_t seed, uint64_t operation, uint64_t rank)
      : base_(mix(mix(mix(seed + 1) + operation) + rank)) {}

  T operator[](size_t index) const {
    const uint64_t bits = mix(base_ + index * 0x9e3779b97f4a7c15ULL);
    if constexpr (std::is_same_v<T, gloo::float16>) {
      return gloo::cpu_float2half_rn(static_cast<float>(bits % 16));
    } else if constexpr (std::is_integral_v<T>) {
      return static_cast<T>(bits);
    } else {
      return static_cast<T>(bits % 4096);
    }
  }

  std::vector<T> first(size_t count) const {
    std::vector<T> values(count);
    for (size_t i = 0; i < count; ++i) values[i] = (*this)[i];
    return values;
  }

 private:
  uint64_t base_;
};

template <typename T>
std::string text_of(const T& value) {
  if constexpr (std::is_same_v<T, gloo::float16>) {
    return std::to_string(gloo::cpu_half2float(value));
  } else {
    return std::to_string(value);
  }
}

// Compares each element with what `wanted` returns for its index.
template <typename T, typename F>
void check(const std::string& what, const T* got, size_t count, const F& wanted) {
  for (size_t i = 0; i < count; ++i) {
    const T right = wanted(i);
    if (!(got[i] == right)) {
      throw Wrong(what + ": element " + std::to_string(i) + " of " + std::to_string(count) +
                  " is " + text_of(got[i]) + ", not " + text_of(right));
    }
  }
}

template <typename T, typename F>
void check(const std::string& what, const std::vector<T>& got, const F& wanted) {
  check(what, got.data(), got.size(), wanted);
}

template <typename T>
void check_same(const std::string& what, const T& got, const T& wanted) {
  if (!(got == wanted)) throw Wrong(what + " is " + text_of(got) + ", not " + text_of(wanted));
}

}  // namespace nezha::gloo_cases
