// SPDX-License-Identifier: Apache-2.0
/// The two 16-bit floating-point types, for which C++17 has no names.
#pragma once

#include <cstdint>
#include <cstring>

namespace nezha {
namespace internal {

inline uint32_t float_bits(float value) {
  uint32_t bits = 0;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}

inline float float_of(uint32_t bits) {
  float value = 0;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

}  // namespace internal

/// IEEE 754 binary16: 1 bit of sign, 5 of exponent, 10 of fraction. Conversions round to the
/// nearest, ties to even; a NaN stays a NaN. The type has no arithmetic: convert to float.
struct Float16 {
  /// The encoding: the sign is the highest bit.
  uint16_t bits;

  Float16() = default;  // trivial: sets nothing
  /// Rounds; 65520 and more become infinity.
  explicit Float16(float value) {
    const uint32_t all = internal::float_bits(value);
    const uint32_t sign = (all >> 16) & 0x8000;
    const uint32_t magnitude = all & 0x7fffffff;
    uint32_t half = 0x7c00;  // infinity, which 65520 and more become
    if (magnitude > 0x7f800000) {
      half = 0x7e00 | ((magnitude >> 13) & 0x3ff);
    } else if (magnitude < 0x38800000) {
      // The value is below 2^-14, the smallest normal half. The last place of floats from 0.5 to 1
      // is 2^-24, and so is that of subnormal halves, so this addition rounds.
      half = internal::float_bits(internal::float_of(magnitude) + 0.5F) & 0x7fffff;
    } else if (magnitude < 0x477ff000) {
      half = (magnitude - 0x38000000 + 0xfff + ((magnitude >> 13) & 1)) >> 13;
    }
    bits = static_cast<uint16_t>(sign | half);
  }
  /// Converts to the same number: every Float16 is a float.
  explicit operator float() const {
    constexpr float kScale = 0x1p112F;  // the exponents' biases differ by 112
    const uint32_t magnitude = static_cast<uint32_t>(bits & 0x7fff) << 13;
    const float value = internal::float_of(magnitude) * kScale;
    const uint32_t special = (bits & 0x7c00) == 0x7c00 ? 0x7f800000 : 0;
    const uint32_t sign = static_cast<uint32_t>(bits & 0x8000) << 16;
    return internal::float_of(internal::float_bits(value) | special | sign);
  }
};

/// bfloat16: the upper half of a float. Conversions round to the nearest, ties to even; a NaN stays
/// a NaN. The type has no arithmetic: convert to float.
struct BFloat16 {
  /// The upper 16 bits of the float's encoding.
  uint16_t bits;

  BFloat16() = default;  // trivial: sets nothing
  /// Rounds; a value that rounds to more than the largest finite number becomes infinity.
  explicit BFloat16(float value) {
    const uint32_t all = internal::float_bits(value);
    const bool is_nan = (all & 0x7fffffff) > 0x7f800000;
    // A NaN is made quiet. It is not rounded, because it could become an infinity.
    const uint32_t rounded = is_nan ? all | 0x400000 : all + 0x7fff + ((all >> 16) & 1);
    bits = static_cast<uint16_t>(rounded >> 16);
  }
  /// Converts to the same number: every BFloat16 is a float.
  explicit operator float() const { return internal::float_of(static_cast<uint32_t>(bits) << 16); }
};

}  // namespace nezha
