#include "bench/pattern.h"

#include <array>
#include <cstddef>

#include "absl/strings/str_cat.h"

namespace nezha::bench {
namespace {

// A prime, so that a shift by a whole number of chunks, segments or cache lines is not a multiple.
constexpr size_t kPeriod = 61;
using Period = std::array<float, kPeriod>;

Period input_period(int rank, uint64_t operation) {
  Period values{};
  for (size_t i = 0; i < kPeriod; ++i) {
    const uint64_t mix = static_cast<uint64_t>(rank) * 7 + i * 13 + operation % kPeriod * 31;
    values[i] = static_cast<float>(mix % kPeriod);
  }
  return values;
}

Period sum_period(int size, uint64_t operation) {
  Period sum{};
  for (int rank = 0; rank < size; ++rank) {
    const Period values = input_period(rank, operation);
    for (size_t i = 0; i < kPeriod; ++i) sum[i] += values[i];
  }
  return sum;
}

void check(const std::vector<float>& values, const Period& want) {
  size_t wrong = 0;
  size_t first = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    if (values[i] == want[i % kPeriod]) continue;
    if (wrong++ == 0) first = i;
  }
  if (wrong == 0) return;
  throw WrongResult(absl::StrCat("wrong result at ", values.size() * sizeof(float),
                                 " bytes: element ", first, " is ", values[first], ", want ",
                                 want[first % kPeriod], " (", wrong, " of ", values.size(),
                                 " elements are wrong)"));
}

}  // namespace

void fill_input(std::vector<float>& input, int rank, uint64_t operation) {
  const Period values = input_period(rank, operation);
  for (size_t i = 0; i < input.size(); ++i) input[i] = values[i % kPeriod];
}

void check_sum(const std::vector<float>& sum, int size, uint64_t operation) {
  check(sum, sum_period(size, operation));
}

void check_copy(const std::vector<float>& copy, int rank, uint64_t operation) {
  check(copy, input_period(rank, operation));
}

}  // namespace nezha::bench
