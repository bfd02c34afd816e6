// SPDX-License-Identifier: Apache-2.0
#include "bench/measurement/pattern.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <tuple>
#include <type_traits>
#include <vector>

#include "bench/measurement/element_type.h"

namespace nezha::bench {
namespace {

constexpr uint64_t kNumber = 5;
constexpr size_t kElements = 1000;

template <typename T>
constexpr bool kIsHalf = std::is_same_v<T, Float16> || std::is_same_v<T, BFloat16>;

// The element in a type that holds every operation's result exactly. Converting to the element's
// type and back applies that type's rounding and range.
template <typename T>
long double wide(const T& element) {
  if constexpr (kIsHalf<T>) {
    return static_cast<float>(element);
  } else {
    return element;
  }
}

template <typename T>
T narrow(long double value) {
  if constexpr (kIsHalf<T>) {
    return T(static_cast<float>(value));
  } else {
    return static_cast<T>(value);
  }
}

long double combine(ReduceOperation operation, long double a, long double b) {
  switch (operation) {
    case ReduceOperation::kProduct:
      return a * b;
    case ReduceOperation::kMin:
      return std::min(a, b);
    case ReduceOperation::kMax:
      return std::max(a, b);
    default:
      return a + b;
  }
}

class Patterns : public testing::TestWithParam<std::tuple<std::string, std::string, int>> {
 protected:
  DataType type() const { return to_type(std::get<0>(GetParam())); }
  ReduceOperation operation() const { return to_operation(std::get<1>(GetParam())); }
  int ranks() const { return std::get<2>(GetParam()); }
  Pattern pattern() const { return {type(), operation(), ranks()}; }

  std::vector<std::byte> input(int rank, uint64_t number = kNumber) const {
    std::vector<std::byte> bytes(kElements * sizeOf(type()));
    pattern().fill_input(bytes.data(), kElements, rank, number);
    return bytes;
  }

  // The result of combining these ranks' inputs in this order; expects every step to be exact.
  std::vector<std::byte> combined(const std::vector<int>& order, uint64_t number = kNumber) const {
    std::vector<std::byte> bytes = input(order[0], number);
    with_type(type(), [&](auto tag) {
      using T = typename decltype(tag)::Type;
      T* const result = reinterpret_cast<T*>(bytes.data());
      for (size_t place = 1; place < order.size(); ++place) {
        const auto next_bytes = input(order[place], number);
        const T* const next = reinterpret_cast<const T*>(next_bytes.data());
        for (size_t i = 0; i < kElements; ++i) {
          const long double exact = combine(operation(), wide(result[i]), wide(next[i]));
          result[i] = narrow<T>(exact);
          ASSERT_EQ(wide(result[i]), exact) << "element " << i << " of " << place + 1 << " ranks";
        }
      }
      if (operation() != ReduceOperation::kAverage) return;
      for (size_t i = 0; i < kElements; ++i) result[i] = narrow<T>(wide(result[i]) / ranks());
    });
    return bytes;
  }

  std::vector<int> all_ranks() const {
    std::vector<int> all;
    all.reserve(static_cast<size_t>(ranks()));
    for (int rank = 0; rank < ranks(); ++rank) all.push_back(rank);
    return all;
  }
};

TEST_P(Patterns, ResultsAreExactInAnyOrder) {
  std::vector<int> order = all_ranks();
  EXPECT_NO_THROW(pattern().check_reduction(combined(order).data(), kElements, kNumber));
  std::reverse(order.begin(), order.end());
  EXPECT_NO_THROW(pattern().check_reduction(combined(order).data(), kElements, kNumber));
}

TEST_P(Patterns, OneWrongElementIsFound) {
  auto result = combined(all_ranks());
  const size_t size = sizeOf(type());
  std::memset(&result[777 * size], 0xff, size);  // what a separate output holds before
  try {
    pattern().check_reduction(result.data(), kElements, kNumber);
    FAIL();
  } catch (const WrongResult& error) {
    const std::string why = error.what();
    EXPECT_NE(why.find("element 777 is "), std::string::npos) << why;
    EXPECT_NE(why.find("(1 of 1000 elements are wrong)"), std::string::npos) << why;
  }
}

TEST_P(Patterns, StaleShiftedAndMissingPartsAreFound) {
  const auto stale = combined(all_ranks(), kNumber + 1);
  EXPECT_THROW(pattern().check_reduction(stale.data(), kElements, kNumber), WrongResult);
  const auto right = combined(all_ranks());
  const size_t line = 64 / sizeOf(type());
  EXPECT_THROW(pattern().check_reduction(&right[64], kElements - line, kNumber), WrongResult);
  std::vector<int> too_few = all_ranks();
  too_few.pop_back();
  const auto missing = combined(too_few);
  EXPECT_THROW(pattern().check_reduction(missing.data(), kElements, kNumber), WrongResult);
}

TEST_P(Patterns, ACopyIsOfOneRank) {
  const auto copy = input(1);
  EXPECT_NO_THROW(pattern().check_copy(copy.data(), kElements, 1, kNumber));
  EXPECT_THROW(pattern().check_copy(copy.data(), kElements, 0, kNumber), WrongResult);
}

std::string name_of_case(const testing::TestParamInfo<Patterns::ParamType>& info) {
  return std::get<0>(info.param) + "_" + std::get<1>(info.param) + "_" +
         std::to_string(std::get<2>(info.param));
}

INSTANTIATE_TEST_SUITE_P(All, Patterns,
                         testing::Combine(testing::ValuesIn(type_names()),
                                          testing::ValuesIn(operation_names()),
                                          testing::Values(2, 5, 16)),
                         name_of_case);
// With this many ranks, the ranks of narrow types take turns.
INSTANTIATE_TEST_SUITE_P(ManyRanks, Patterns,
                         testing::Combine(testing::Values("int8", "bfloat16", "float16"),
                                          testing::Values("sum", "product", "average"),
                                          testing::Values(64)),
                         name_of_case);

TEST(ElementTypes, NamesAreTheLibrarys) {
  EXPECT_EQ(type_names().size(), 12);
  EXPECT_EQ(operation_names(),
            (std::vector<std::string>{"sum", "product", "min", "max", "average"}));
  EXPECT_EQ(to_type("bfloat16"), DataType::kBFloat16);
  EXPECT_EQ(to_type("float64"), DataType::kFloat64);
  EXPECT_EQ(to_operation("max"), ReduceOperation::kMax);
  EXPECT_EQ(to_type(""), DataType::kFloat32);
}

}  // namespace
}  // namespace nezha::bench
