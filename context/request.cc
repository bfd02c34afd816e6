// SPDX-License-Identifier: Apache-2.0
#include "context/request.h"

#include "absl/strings/str_cat.h"
#include "collectives/signature.h"
#include "context/split.h"

namespace nezha {

std::string Request::name() const {
  if (exchange != nullptr) return exchange->name();
  if (operation.tag == kOwnTag) return "split";
  const auto root = static_cast<uint32_t>(operation.root);
  return absl::StrCat(collective_name(operation.collective, root), " (tag ", operation.tag, ", ",
                      operation.bytes(), " bytes)");
}

}  // namespace nezha
