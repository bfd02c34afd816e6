// SPDX-License-Identifier: Apache-2.0
#include "context/exchange.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "context/exchange_tasks.h"

namespace nezha {
namespace {

// Differs from all tags of collectives, which use lower bits (collectives/signature.h), and of
// control messages, which use a higher one.
constexpr uint64_t kOfExchange = kEndOfExchangeTags;

constexpr size_t kMostNamed = 8;  // ranks, in an error

}  // namespace

std::string names_of(const std::vector<int>& ranks) {
  if (ranks.size() == 1) return absl::StrCat("rank ", ranks.front());
  const bool is_long = ranks.size() > kMostNamed + 1;
  const size_t named = is_long ? kMostNamed : ranks.size() - 1;
  const auto end = ranks.begin() + static_cast<ptrdiff_t>(named);
  const std::string last =
      is_long ? absl::StrCat(ranks.size() - named, " others") : absl::StrCat(ranks.back());
  return absl::StrCat("ranks ", absl::StrJoin(ranks.begin(), end, ", "), " and ", last);
}

std::string Exchange::name() const {
  const std::string who = terms_.is_send            ? "send to " + names_of(terms_.peers)
                          : terms_.is_from_any      ? "recv from any rank"
                          : terms_.peers.size() > 1 ? "recv from any of " + names_of(terms_.peers)
                                                    : "recv from " + names_of(terms_.peers);
  return absl::StrCat(who, " (tag ", terms_.tag, ", ", terms_.bytes, " bytes)");
}

wire::MessageInfo Exchange::info(uint64_t context) const {
  return {.context = context, .tag = kOfExchange | terms_.tag, .total = terms_.bytes};
}

std::vector<int> Exchange::others() const {
  std::vector<int> others = terms_.peers;
  std::erase(others, terms_.rank);
  return others;
}

std::vector<int> Exchange::peers(const Group& /*group*/, const Operation& /*operation*/,
                                 const EnginePlan& /*plan*/) const {
  return others();
}

absl::StatusOr<std::unique_ptr<Task>> Exchange::start(const Group& group, const Slice& slice,
                                                      const EnginePlan& /*plan*/,
                                                      TaskOwner& owner) {
  if (terms_.is_send) {
    auto task = std::make_unique<SendTask>(*this, group, loopback_, owner);
    if (absl::Status status = task->start(slice.rails); !status.ok()) return status;
    return task;
  }
  auto task = std::make_unique<ReceiveTask>(*this, group, loopback_, owner);
  task->start();
  return task;
}

}  // namespace nezha
