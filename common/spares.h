// SPDX-License-Identifier: Apache-2.0
// Objects that are used again, so that the steady state does not allocate.
#pragma once

#include <memory>
#include <new>
#include <utility>
#include <vector>

namespace nezha {

// Keeps objects until they are used again. The class is not thread-safe. An object comes back in
// the state in which it was put back: its next user must set it up.
template <typename T>
class Spares {
 public:
  std::unique_ptr<T> take() {
    if (spares_.empty()) return std::make_unique<T>();
    std::unique_ptr<T> object = std::move(spares_.back());
    spares_.pop_back();
    return object;
  }
  void put_back(std::unique_ptr<T> object) noexcept {
    try {
      spares_.push_back(std::move(object));
    } catch (const std::bad_alloc&) {
      // There is no memory to keep it.
    }
  }

 private:
  std::vector<std::unique_ptr<T>> spares_;
};

}  // namespace nezha
