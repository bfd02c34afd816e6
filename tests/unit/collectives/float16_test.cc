// SPDX-License-Identifier: Apache-2.0
#include "nezha/float16.h"

#include <gloo/types.h>

#include <cmath>
#include <cstdint>
#include <limits>

#include "gtest/gtest.h"
#include "nezha/types.h"

namespace nezha {
namespace {

template <typename T>
T of_bits(uint32_t bits) {
  T value;
  value.bits = static_cast<uint16_t>(bits);
  return value;
}

template <typename T>
struct Layout;
template <>
struct Layout<Float16> {
  static constexpr int kFractionBits = 10, kBias = 15;
};
template <>
struct Layout<BFloat16> {
  static constexpr int kFractionBits = 7, kBias = 127;
};

// The value of the bits by the format's definition.
template <typename T>
double value_of(uint32_t bits) {
  using L = Layout<T>;
  const uint32_t fraction = bits & ((1U << L::kFractionBits) - 1);
  const auto exponent = static_cast<int>((bits & 0x7fff) >> L::kFractionBits);
  const double sign = bits >= 0x8000 ? -1 : 1;
  if (exponent == 2 * L::kBias + 1) {
    return fraction == 0 ? sign * std::numeric_limits<double>::infinity() : std::nan("");
  }
  const int scale = std::max(exponent, 1) - L::kBias - L::kFractionBits;
  return sign * std::ldexp(fraction + (exponent > 0 ? 1U << L::kFractionBits : 0U), scale);
}

template <typename T>
uint32_t infinity() {
  return 0x7fff & ~((1U << Layout<T>::kFractionBits) - 1);
}

template <typename T>
class Float16Test : public ::testing::Test {};
using Both = ::testing::Types<Float16, BFloat16>;
TYPED_TEST_SUITE(Float16Test, Both);

TYPED_TEST(Float16Test, ConvertsEveryValueAndBack) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const auto value = static_cast<float>(of_bits<TypeParam>(bits));
    const double wanted = value_of<TypeParam>(bits);
    if (std::isnan(wanted)) {
      ASSERT_TRUE(std::isnan(value)) << bits;
      ASSERT_TRUE(std::isnan(static_cast<float>(TypeParam(value)))) << bits;
    } else {
      ASSERT_EQ(value, wanted) << bits;
      ASSERT_EQ(std::signbit(value), bits >= 0x8000) << bits;
      ASSERT_EQ(TypeParam(value).bits, bits);
    }
  }
}

// Tests values below, at and above the middle between each number and the next.
TYPED_TEST(Float16Test, RoundsToTheNearestAndTiesToEven) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  for (uint32_t bits = 0; bits < infinity<TypeParam>(); ++bits) {
    const double here = value_of<TypeParam>(bits);
    // Beyond the largest number: the number that would follow if there were no infinity.
    const double next = bits + 1 == infinity<TypeParam>() ? 2 * here - value_of<TypeParam>(bits - 1)
                                                          : value_of<TypeParam>(bits + 1);
    const auto middle = static_cast<float>((here + next) / 2);
    ASSERT_EQ(middle, (here + next) / 2);
    for (const uint32_t sign : {0U, 0x8000U}) {
      const float s = sign == 0 ? 1 : -1;
      ASSERT_EQ(TypeParam(s * std::nextafter(middle, 0.0F)).bits, sign | bits);
      ASSERT_EQ(TypeParam(s * middle).bits, sign | (bits + bits % 2)) << bits;
      ASSERT_EQ(TypeParam(s * std::nextafter(middle, kInfinity)).bits, sign | (bits + 1));
    }
  }
  EXPECT_EQ(TypeParam(kInfinity).bits, infinity<TypeParam>());
  EXPECT_EQ(TypeParam(std::numeric_limits<float>::max()).bits, infinity<TypeParam>());
  EXPECT_EQ(TypeParam(std::numeric_limits<float>::denorm_min()).bits, 0);
}

TYPED_TEST(Float16Test, NanStaysNan) {
  for (const uint32_t bits : {0x7f800001U, 0x7fffffffU, 0xff800001U, 0x7fc00000U, 0xffffffffU}) {
    EXPECT_TRUE(std::isnan(static_cast<float>(TypeParam(internal::float_of(bits))))) << bits;
  }
}

TEST(DataType, MatchesTheCppType) {
  EXPECT_EQ(dataTypeOf<float>(), DataType::kFloat32);
  EXPECT_EQ(dataTypeOf<double>(), DataType::kFloat64);
  EXPECT_EQ(dataTypeOf<gloo::float16>(), DataType::kFloat16);
  EXPECT_EQ(dataTypeOf<BFloat16>(), DataType::kBFloat16);
  EXPECT_EQ(dataTypeOf<signed char>(), DataType::kInt8);
  EXPECT_EQ(dataTypeOf<unsigned short>(), DataType::kUint16);
  EXPECT_EQ(dataTypeOf<long>(), DataType::kInt64);
  EXPECT_EQ(dataTypeOf<long long>(), DataType::kInt64);
  EXPECT_EQ(dataTypeOf<unsigned long long>(), DataType::kUint64);
  static_assert(sizeOf(dataTypeOf<gloo::float16>()) == sizeof(gloo::float16));
}

TEST(DataType, EachHasANameAndASize) {
  for (int number = 0; number < 256; ++number) {
    const auto type = static_cast<DataType>(number);
    EXPECT_EQ(nameOf(type) != nullptr, number >= 1 && number <= 12) << number;
    EXPECT_EQ(sizeOf(type) != 0, nameOf(type) != nullptr) << number;
    EXPECT_EQ(nameOf(static_cast<ReduceOperation>(number)) != nullptr, number >= 1 && number <= 6);
  }
}

}  // namespace
}  // namespace nezha
