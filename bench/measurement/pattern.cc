// SPDX-License-Identifier: Apache-2.0
#include "bench/measurement/pattern.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <type_traits>
#include <vector>

#include "absl/strings/str_cat.h"
#include "bench/measurement/element_type.h"

namespace nezha::bench {
namespace {

// The number is a prime, so that a shift by a whole number of chunks, segments or cache lines is
// not a multiple.
constexpr size_t kPrime = 61;
constexpr double kMostAddend = kPrime - 1;
constexpr double kMostFactor = 3;

template <typename T>
constexpr bool kIsHalf = std::is_same_v<T, Float16> || std::is_same_v<T, BFloat16>;

// Returns the bits of whole numbers that the type represents exactly, at most a double's.
int exact_bits(DataType type) {
  if (type == DataType::kFloat16) return 11;
  if (type == DataType::kBFloat16) return 8;
  return with_type(type, [](auto tag) {
    using T = typename decltype(tag)::Type;
    return std::min(std::numeric_limits<T>::digits, std::numeric_limits<double>::digits);
  });
}

// Returns how many ranks may give a number of their own, besides neutral ones.
int most_contributors(DataType type, ReduceOperation operation, int ranks) {
  const double most = std::exp2(exact_bits(type)) - 1;
  switch (operation) {
    case ReduceOperation::kSum:
    case ReduceOperation::kAverage:
      return static_cast<int>(std::min<double>(ranks, std::floor(most / kMostAddend)));
    case ReduceOperation::kProduct:
      return static_cast<int>(
          std::min<double>(ranks, std::floor(std::log(most) / std::log(kMostFactor))));
    default:
      return ranks;
  }
}

bool is_signed(DataType type) {
  return with_type(type, [](auto tag) {
    using T = typename decltype(tag)::Type;
    return kIsHalf<T> || std::is_signed_v<T>;
  });
}

template <typename T>
T to_element(double value) {
  if constexpr (kIsHalf<T>) {
    return T(static_cast<float>(value));
  } else {
    return static_cast<T>(value);
  }
}

template <typename T>
bool is_equal(const T& a, const T& b) {
  if constexpr (kIsHalf<T>) {
    return static_cast<float>(a) == static_cast<float>(b);
  } else {
    return a == b;
  }
}

template <typename T>
std::string to_text(const T& element) {
  if constexpr (kIsHalf<T>) {
    return absl::StrCat(static_cast<float>(element));
  } else {
    return absl::StrCat(+element);  // a number, also if it is a char
  }
}

template <typename T>
void check(const T* values, size_t elements, const std::vector<T>& want) {
  size_t wrong = 0;
  size_t first = 0;
  for (size_t i = 0; i < elements; ++i) {
    if (is_equal(values[i], want[i % want.size()])) continue;
    if (wrong++ == 0) first = i;
  }
  if (wrong == 0) return;
  throw WrongResult(absl::StrCat("wrong result at ", elements * sizeof(T), " bytes: element ",
                                 first, " is ", to_text(values[first]), " instead of ",
                                 to_text(want[first % want.size()]), " (", wrong, " of ", elements,
                                 " elements are wrong)"));
}

template <typename T, typename Value>
std::vector<T> one_period(size_t length, const Value& value) {
  std::vector<T> period(length);
  for (size_t i = 0; i < length; ++i) period[i] = to_element<T>(value(i));
  return period;
}

}  // namespace

Pattern::Pattern(DataType type, ReduceOperation operation, int ranks)
    : type_(type), operation_(operation), ranks_(ranks) {
  const int contributors = most_contributors(type, operation, ranks);
  turns_ = static_cast<size_t>((ranks + contributors - 1) / contributors);
  period_ = kPrime * turns_;
}

double Pattern::input(int rank, size_t element, uint64_t number) const {
  const auto place = static_cast<uint64_t>(rank);
  const uint64_t mix = (place * 7 + element * 13 + number % kPrime * 31) % kPrime;
  const bool has_turn = (place + element + number) % turns_ == 0;
  switch (operation_) {
    case ReduceOperation::kProduct:
      return has_turn ? 1 + static_cast<double>(mix % 3) : 1;
    case ReduceOperation::kMin:
    case ReduceOperation::kMax:
      // The numbers are even, because -1 has all bits set.
      return is_signed(type_) ? 2 * static_cast<double>(mix) - kMostAddend
                              : static_cast<double>(mix);
    default:
      return has_turn ? static_cast<double>(mix) : 0;
  }
}

double Pattern::reduction(size_t element, uint64_t number) const {
  double result = input(0, element, number);
  for (int rank = 1; rank < ranks_; ++rank) {
    const double next = input(rank, element, number);
    switch (operation_) {
      case ReduceOperation::kProduct:
        result *= next;
        break;
      case ReduceOperation::kMin:
        result = std::min(result, next);
        break;
      case ReduceOperation::kMax:
        result = std::max(result, next);
        break;
      default:
        result += next;
    }
  }
  return operation_ == ReduceOperation::kAverage ? result / ranks_ : result;
}

void Pattern::fill_input(void* input, size_t elements, int rank, uint64_t number) const {
  with_type(type_, [&](auto tag) {
    using T = typename decltype(tag)::Type;
    const auto period =
        one_period<T>(period_, [&](size_t i) { return this->input(rank, i, number); });
    T* const to = static_cast<T*>(input);
    for (size_t i = 0; i < elements; ++i) to[i] = period[i % period.size()];
  });
}

void Pattern::check_reduction(const void* result, size_t elements, uint64_t number,
                              size_t first) const {
  with_type(type_, [&](auto tag) {
    using T = typename decltype(tag)::Type;
    check(static_cast<const T*>(result), elements,
          one_period<T>(period_, [&](size_t i) { return reduction(first + i, number); }));
  });
}

void Pattern::check_copy(const void* copy, size_t elements, int rank, uint64_t number,
                         size_t first) const {
  with_type(type_, [&](auto tag) {
    using T = typename decltype(tag)::Type;
    check(static_cast<const T*>(copy), elements,
          one_period<T>(period_, [&](size_t i) { return input(rank, first + i, number); }));
  });
}

}  // namespace nezha::bench
