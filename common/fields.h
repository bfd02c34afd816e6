// SPDX-License-Identifier: Apache-2.0
// The fields of wire formats: unsigned integers of fixed width, little-endian, one after the other.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "absl/strings/string_view.h"
#include "common/unique_id.h"

namespace nezha {

template <typename T>
T swap_if_big_endian(T value) {
  if constexpr (std::endian::native == std::endian::big && sizeof(T) > 1) {
    T swapped = 0;
    for (size_t i = 0; i < sizeof(T); ++i) {
      swapped = static_cast<T>((swapped << 8) | ((value >> (8 * i)) & 0xff));
    }
    return swapped;
  }
  return value;
}

// Writes fields one after the other. The caller makes sure that there is room for them.
class FieldWriter {
 public:
  explicit FieldWriter(std::byte* out) : out_(out) {}

  template <typename T>
  FieldWriter& put(T value) {
    static_assert(std::is_unsigned_v<T>);
    value = swap_if_big_endian(value);
    std::memcpy(out_, &value, sizeof(T));
    out_ += sizeof(T);
    return *this;
  }
  FieldWriter& put(const UniqueId& id) { return put(id.high).put(id.low); }
  FieldWriter& put(absl::string_view text, size_t width) {
    std::memset(out_, 0, width);
    std::memcpy(out_, text.data(), std::min(text.size(), width));
    out_ += width;
    return *this;
  }

 private:
  std::byte* out_;
};

// Reads fields one after the other. The caller makes sure that there are enough bytes.
class FieldReader {
 public:
  explicit FieldReader(const std::byte* in) : in_(in) {}

  template <typename T>
  T get() {
    T value;
    std::memcpy(&value, in_, sizeof(T));
    in_ += sizeof(T);
    return swap_if_big_endian(value);
  }
  UniqueId get_id() {
    const auto high = get<uint64_t>();
    return {high, get<uint64_t>()};
  }
  absl::string_view get_text(size_t width) {
    const absl::string_view text(reinterpret_cast<const char*>(in_), width);
    in_ += width;
    return text;
  }

 private:
  const std::byte* in_;
};

}  // namespace nezha
