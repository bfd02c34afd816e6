// SPDX-License-Identifier: Apache-2.0
#include "nezha/registered_memory.h"

#include <cstdint>

#include "absl/strings/str_cat.h"
#include "nezha/errors.h"
#include "transport/held_memory.h"

namespace nezha {

RegisteredMemory::RegisteredMemory() = default;
RegisteredMemory::~RegisteredMemory() = default;
RegisteredMemory::RegisteredMemory(RegisteredMemory&& other) noexcept = default;
RegisteredMemory& RegisteredMemory::operator=(RegisteredMemory&& other) noexcept = default;

RegisteredMemory registerMemory(const void* data, size_t bytes) {
  if (data == nullptr && bytes > 0) {
    throw InvalidArgument("nezha: registerMemory was given a null pointer; give it memory");
  }
  if (bytes > UINTPTR_MAX - reinterpret_cast<uintptr_t>(data)) {
    throw InvalidArgument(absl::StrCat("nezha: registerMemory was given ", bytes,
                                       " bytes, which is more than memory has"));
  }
  RegisteredMemory memory;
  memory.hold_ = std::make_unique<Hold>(data, bytes);
  return memory;
}

}  // namespace nezha
