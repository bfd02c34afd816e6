// SPDX-License-Identifier: Apache-2.0
#include "collectives/integer_division.h"

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "absl/numeric/int128.h"

namespace nezha {
namespace {

// Divides 32-bit numbers by multiplying with the reciprocal, some ten times as fast as the CPU's
// division: for x and d below 2^32, floor(x / d) = floor(x * m / 2^64) with m = ceil(2^64 / d),
// because rounding m up adds less than 1/d. (T. Granlund, P. Montgomery: Division by invariant
// integers using multiplication, theorem 4.2.)
class Divisor {
 public:
  explicit Divisor(uint32_t divisor) : divisor_(divisor), reciprocal_(~uint64_t{0} / divisor + 1) {}

  uint32_t operator()(uint32_t x) const {
    return static_cast<uint32_t>(absl::Uint128High64(absl::uint128(x) * reciprocal_));
  }
  uint64_t operator()(uint64_t x) const { return x / divisor_; }

 private:
  uint64_t divisor_;
  uint64_t reciprocal_;
};

template <typename T>
T quotient(T value, const Divisor& divisor) {
  using Magnitude = std::conditional_t<sizeof(T) == 8, uint64_t, uint32_t>;
  const bool is_negative = value < 0;
  // NOLINTNEXTLINE(bugprone-signed-char-misuse): the sign is to be extended
  const auto bits = static_cast<Magnitude>(value);
  const Magnitude magnitude = divisor(is_negative ? Magnitude{0} - bits : bits);
  return static_cast<T>(is_negative ? Magnitude{0} - magnitude : magnitude);
}

template <typename T>
void divide_all(void* out, const void* in, size_t elements, int by) {
  const Divisor divisor(static_cast<uint32_t>(by));
  auto* to = static_cast<std::byte*>(out);
  const auto* from = static_cast<const std::byte*>(in);
  for (size_t i = 0; i < elements; ++i) {
    T value;
    std::memcpy(&value, from + i * sizeof value, sizeof value);
    value = quotient(value, divisor);
    std::memcpy(to + i * sizeof value, &value, sizeof value);
  }
}

}  // namespace

void divide_integers(DataType type, void* out, const void* in, size_t elements, int divisor) {
  if (divisor == 1) {  // its reciprocal does not fit
    std::memmove(out, in, elements * sizeOf(type));
    return;
  }
  switch (type) {
    case DataType::kUint8:
      return divide_all<uint8_t>(out, in, elements, divisor);
    case DataType::kInt8:
      return divide_all<int8_t>(out, in, elements, divisor);
    case DataType::kUint16:
      return divide_all<uint16_t>(out, in, elements, divisor);
    case DataType::kInt16:
      return divide_all<int16_t>(out, in, elements, divisor);
    case DataType::kUint32:
      return divide_all<uint32_t>(out, in, elements, divisor);
    case DataType::kInt32:
      return divide_all<int32_t>(out, in, elements, divisor);
    case DataType::kUint64:
      return divide_all<uint64_t>(out, in, elements, divisor);
    case DataType::kInt64:
      return divide_all<int64_t>(out, in, elements, divisor);
    default:
      return;
  }
}

}  // namespace nezha
