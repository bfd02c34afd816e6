// SPDX-License-Identifier: Apache-2.0
#include "interop/takeover/whole.h"

#include <cstdlib>
#include <string>
#include <string_view>

#include "nezha/errors.h"
#include "nezha/gloo.h"

namespace nezha::takeover {

std::shared_ptr<Context> context_of(const std::shared_ptr<::gloo::Context>& context) {
  static const bool kIsWanted = [] {
    const char* value = std::getenv("NEZHA_GLOO_COLLECTIVES");
    return value == nullptr || std::string_view(value) != "gloo";
  }();
  return kIsWanted ? glooContext(*context) : nullptr;
}

std::optional<Reduction> reduction_by(const ReduceFunction& function, size_t element_size) {
  if (function == nullptr) return std::nullopt;
  const auto known = recognise(function);
  if (known && sizeOf(known->type) == element_size) return known;
  switch (element_size) {
    case 1:
      return Reduction{DataType::kUint8, ReduceOperation::kCustom};
    case 2:
      return Reduction{DataType::kUint16, ReduceOperation::kCustom};
    case 4:
      return Reduction{DataType::kUint32, ReduceOperation::kCustom};
    case 8:
      return Reduction{DataType::kUint64, ReduceOperation::kCustom};
    default:
      return std::nullopt;
  }
}

void run(std::chrono::milliseconds timeout, const std::function<void()>& collective) {
  try {
    collective();
  } catch (const TimeoutError& error) {
    throw TimeoutError("[nezha] Timed out waiting " + std::to_string(timeout.count()) +
                           "ms for collective operation to complete: " + error.what(),
                       error.ranks());
  }
}

}  // namespace nezha::takeover
