// SPDX-License-Identifier: Apache-2.0
#include "collectives/reducer.h"

#include <exception>

#include "absl/strings/str_cat.h"

namespace nezha {
namespace {

absl::Status call(const ReduceFunction& function, void* out, const void* a, const void* b,
                  size_t elements) {
  if (elements == 0) return absl::OkStatus();
  constexpr absl::string_view kThrew = "the operation's reduce function threw ";
  try {
    function(out, a, b, elements);
  } catch (const std::exception& error) {
    return absl::InternalError(absl::StrCat(kThrew, "an exception: ", error.what()));
  } catch (...) {
    return absl::InternalError(absl::StrCat(kThrew, "something that is no std::exception"));
  }
  return absl::OkStatus();
}

}  // namespace

Reducer::Reducer(DataType type, ReduceOperation operation, const ReduceFunction* function,
                 int ranks)
    : type_(type),
      is_average_(operation == ReduceOperation::kAverage),
      ranks_(ranks),
      reduction_(reduction(type, operation)),
      function_(function) {}

absl::Status Reducer::combine(void* out, const void* a, const void* b, size_t elements) const {
  if (function_ != nullptr) return call(*function_, out, a, b, elements);
  reduction_(out, a, b, elements);
  return absl::OkStatus();
}

absl::Status Reducer::finish(void* out, void* scratch, const void* a, const void* b,
                             size_t elements) const {
  if (!is_average_) return combine(out, a, b, elements);
  reduction_(scratch, a, b, elements);
  divide(type_, out, scratch, elements, ranks_);
  return absl::OkStatus();
}

}  // namespace nezha
