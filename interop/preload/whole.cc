// SPDX-License-Identifier: Apache-2.0
#include "interop/preload/whole.h"

#include <cstdlib>
#include <string>
#include <string_view>

#include "nezha/errors.h"
#include "nezha/gloo.h"

namespace nezha::preload {

std::shared_ptr<Context> context_of(const std::shared_ptr<::gloo::Context>& context) {
  static const bool kIsWanted = [] {
    const char* value = std::getenv("NEZHA_GLOO_COLLECTIVES");
    return value == nullptr || std::string_view(value) != "gloo";
  }();
  return kIsWanted ? glooContext(*context) : nullptr;
}

std::optional<DataType> type_of(size_t element_size) {
  switch (element_size) {
    case 1:
      return DataType::kUint8;
    case 2:
      return DataType::kUint16;
    case 4:
      return DataType::kUint32;
    case 8:
      return DataType::kUint64;
    default:
      return std::nullopt;
  }
}

void run(std::chrono::milliseconds timeout, const std::function<void()>& collective) {
  try {
    collective();
  } catch (const TimeoutError& error) {
    throw TimeoutError("Timed out waiting " + std::to_string(timeout.count()) +
                           "ms for collective operation to complete: " + error.what(),
                       error.ranks());
  }
}

}  // namespace nezha::preload
