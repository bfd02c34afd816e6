// SPDX-License-Identifier: Apache-2.0
// Replaces NVIDIA's driver library, libcuda.so.1, where there is none. It has the one function that
// nezha calls, with the driver's constants, and knows the one allocation that the test registers.
// This does not test what a real driver answers or maps.
#include <cstddef>
#include <cstdint>

extern "C" {
// For the test: makes the driver know the byte at `memory` and no other.
void stand_in_set(const std::byte* memory, bool managed);
int cuPointerGetAttribute(void* value, int attribute, unsigned long long pointer);
}

namespace {

constexpr int kSuccess = 0;
constexpr int kInvalidValue = 1;
constexpr int kMemoryType = 2;  // the attribute
constexpr uint32_t kMemoryTypeDevice = 2;
constexpr int kIsManaged = 8;  // the attribute

const std::byte* device_memory = nullptr;
bool is_managed = false;

}  // namespace

void stand_in_set(const std::byte* memory, bool managed) {
  device_memory = memory;
  is_managed = managed;
}

int cuPointerGetAttribute(void* value, int attribute, unsigned long long pointer) {
  if (pointer != reinterpret_cast<uintptr_t>(device_memory)) return kInvalidValue;
  if (attribute != kMemoryType && attribute != kIsManaged) return kInvalidValue;
  *static_cast<uint32_t*>(value) = attribute == kMemoryType ? kMemoryTypeDevice
                                   : is_managed             ? 1
                                                            : 0;
  return kSuccess;
}
