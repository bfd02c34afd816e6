// SPDX-License-Identifier: Apache-2.0
#include "context/raise.h"

#include "absl/strings/str_cat.h"
#include "context/lost_ranks.h"
#include "nezha/errors.h"

namespace nezha {

std::string prefixed(absl::string_view rank_of, absl::string_view text) {
  return absl::StrCat("nezha: ", rank_of, ": ", text);
}

void raise(absl::string_view rank_of, const absl::Status& why) {
  const std::string text = prefixed(rank_of, absl::string_view(why.message()));
  if (absl::IsDeadlineExceeded(why)) throw TimeoutError(text, lost_ranks(why));
  throw IoError(text, lost_ranks(why));
}

}  // namespace nezha
