// SPDX-License-Identifier: Apache-2.0
#include "common/out_of_memory.h"

#include <cstdio>
#include <exception>
#include <memory>
#include <mutex>

#include "absl/strings/str_cat.h"
#include "common/fork.h"

namespace nezha {
namespace {

// The blocks are so small that malloc() takes them from its heaps instead of mapping each of them
// from the kernel, so other allocations can use their memory once they are freed.
struct Reserve {
  std::mutex mutex;
  std::array<std::unique_ptr<std::byte[]>, 4> blocks;
};
constexpr size_t kBlock = 64 << 10;  // bytes

Reserve& reserve() {
  static PerProcess<Reserve> per_process;
  return per_process.get();
}

constexpr char kAdvice[] = "; raise the process's memory limit, or use smaller messages";

}  // namespace

OutOfMemory::OutOfMemory(size_t bytes) {
  std::snprintf(text_.data(), text_.size(), "out of memory: %zu bytes cannot be had", bytes);
}

void keep_reserve() {
  Reserve& kept = reserve();
  const std::lock_guard lock(kept.mutex);
  for (auto& block : kept.blocks) {
    if (block == nullptr) block = std::make_unique<std::byte[]>(kBlock);
  }
}

void free_reserve() noexcept {
  Reserve& kept = reserve();
  const std::lock_guard lock(kept.mutex);
  for (auto& block : kept.blocks) block.reset();
}

absl::Status caught_status() noexcept {
  free_reserve();
  try {
    try {
      throw;
    } catch (const OutOfMemory& error) {
      return absl::ResourceExhaustedError(absl::StrCat(error.what(), kAdvice));
    } catch (const std::bad_alloc&) {
      return absl::ResourceExhaustedError(absl::StrCat("out of memory", kAdvice));
    } catch (const std::exception& error) {
      return absl::InternalError(absl::StrCat("an unexpected exception: ", error.what()));
    } catch (...) {
      return absl::InternalError("an unexpected exception");
    }
  } catch (...) {
    return absl::Status(absl::StatusCode::kResourceExhausted, "");
  }
}

}  // namespace nezha
