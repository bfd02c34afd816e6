#include "context/roll_call.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace nezha {

bool RollCall::has_entered(const wire::RollCall& call) const {
  const auto entry = entered_.find(call.tag);
  return entry != entered_.end() && entry->second >= call.ordinal;
}

bool RollCall::hear(const wire::RollCall& call) {
  auto known = std::find_if(calls_.begin(), calls_.end(), [&](const Call& c) {
    return c.tag == call.tag && c.ordinal == call.ordinal;
  });
  const bool is_new = known == calls_.end();
  if (is_new) {
    if (calls_.size() == kMaxCalls) calls_.pop_front();
    calls_.push_back({call.tag, call.ordinal, {}});
    known = std::prev(calls_.end());
  }
  if (call.absent == wire::RollCall::kWhoIsAbsent) return is_new;
  return known->absent.size() < kMaxAbsent && known->absent.insert(call.absent).second;
}

std::string RollCall::absent(uint32_t tag, uint64_t ordinal) const {
  for (const Call& call : calls_) {
    if (call.tag != tag || call.ordinal != ordinal || call.absent.empty()) continue;
    const bool one = call.absent.size() == 1;
    return absl::StrCat(one ? "rank " : "ranks ", absl::StrJoin(call.absent, ", "),
                        one ? " has" : " have", " not entered it",
                        call.absent.size() == kMaxAbsent ? ", nor may others have" : "");
  }
  return "";
}

}  // namespace nezha
