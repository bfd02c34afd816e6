// SPDX-License-Identifier: Apache-2.0
// Bytes with an unbound buffer.
#pragma once

#include <gloo/context.h>
#include <gloo/transport/unbound_buffer.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "cluster/gloo/data.h"

namespace nezha::gloo_cases {

constexpr uint8_t kUntouched = 0xa5;

class Memory {
 public:
  Memory(const std::shared_ptr<gloo::Context>& context, size_t size)
      : bytes_(size + 1, kUntouched), buffer_(context->createUnboundBuffer(bytes_.data(), size)) {}
  Memory(const std::shared_ptr<gloo::Context>& context, size_t size, const Values<uint8_t>& values)
      : Memory(context, size) {
    for (size_t i = 0; i < size; ++i) bytes_[i] = values[i];
  }

  gloo::transport::UnboundBuffer* operator->() const { return buffer_.get(); }

  // Checks that `count` bytes from the offset are the first of these values.
  void check_part(size_t offset, size_t count, const Values<uint8_t>& values) const {
    check("what came", bytes_.data() + offset, count, [&](size_t i) { return values[i]; });
  }
  bool holds(size_t count, const Values<uint8_t>& values) const {
    return std::equal(bytes_.begin(), bytes_.begin() + count, values.first(count).begin());
  }
  void check_untouched(size_t offset) const {
    check("what is beside it", bytes_.data() + offset, bytes_.size() - offset,
          [](size_t) { return kUntouched; });
  }

 private:
  std::vector<uint8_t> bytes_;
  std::unique_ptr<gloo::transport::UnboundBuffer> buffer_;
};

}  // namespace nezha::gloo_cases
