// SPDX-License-Identifier: Apache-2.0
#include "context/attendance.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace nezha {
namespace {

std::string tell_of(const std::set<uint32_t>& ranks, absl::string_view what) {
  const bool one = ranks.size() == 1;
  return absl::StrCat(one ? "rank " : "ranks ", absl::StrJoin(ranks, ", "), one ? " has" : " have",
                      what);
}

}  // namespace

uint64_t Attendance::enter(uint32_t tag, uint64_t signature) {
  const uint64_t ordinal = entered_.add(tag);
  entries_[slot(tag, ordinal)] = {tag, ordinal, signature};
  return ordinal;
}

bool Attendance::has_entered(uint32_t tag, uint64_t ordinal) const {
  return entered_.of(tag) >= ordinal;
}

size_t Attendance::find(uint32_t tag, uint64_t ordinal) const {
  const auto known = std::find_if(calls_.begin(), calls_.end(), [&](const Call& call) {
    return call.tag == tag && call.ordinal == ordinal;
  });
  return static_cast<size_t>(known - calls_.begin());
}

bool Attendance::hear(const wire::RollCall& call) {
  const size_t index = find(call.tag, call.ordinal);
  if (index == calls_.size()) {
    if (calls_.size() == kMaxCalls) calls_.pop_front();
    calls_.push_back({call.tag, call.ordinal, false, {}, {}, {}, {}});
  }
  Call& known = calls_[std::min(index, calls_.size() - 1)];
  if (call.kind == wire::RollCallKind::kAbsent || call.kind == wire::RollCallKind::kSilent) {
    auto& ranks = call.kind == wire::RollCallKind::kAbsent ? known.absent : known.silent;
    const bool is_stale = known.late.contains(call.rank);
    return !is_stale && ranks.size() < kMaxAbsent && ranks.insert(call.rank).second;
  }
  bool is_news = call.kind == wire::RollCallKind::kWhoIsAbsent && !known.asked;
  known.asked |= is_news;
  if (known.absent.erase(call.rank) + known.silent.erase(call.rank) > 0) {
    known.late.insert(call.rank);
    is_news = true;
  }
  auto& callers = known.callers;
  const bool is_known = std::any_of(callers.begin(), callers.end(), [&](const auto& caller) {
    return caller.signature == call.signature;
  });
  if (!is_known && callers.size() < kMaxCallers) {
    callers.push_back(call);
    is_news = true;
  }
  return is_news;
}

bool Attendance::has_said_absent(uint32_t rank, uint32_t tag, uint64_t ordinal) const {
  const size_t index = find(tag, ordinal);
  return index < calls_.size() && calls_[index].absent.contains(rank);
}

uint64_t Attendance::signature(uint32_t tag, uint64_t ordinal) const {
  const Entry& entry = entries_[slot(tag, ordinal)];
  return entry.tag == tag && entry.ordinal == ordinal ? entry.signature : 0;
}

std::optional<wire::RollCall> Attendance::other(uint32_t tag, uint64_t ordinal) const {
  const size_t index = find(tag, ordinal);
  const uint64_t own = signature(tag, ordinal);
  if (index == calls_.size() || own == 0) return std::nullopt;
  const auto& callers = calls_[index].callers;
  const auto other = std::find_if(callers.begin(), callers.end(),
                                  [&](const auto& caller) { return caller.signature != own; });
  if (other == callers.end()) return std::nullopt;
  return *other;
}

std::string Attendance::absent(uint32_t tag, uint64_t ordinal) const {
  const size_t index = find(tag, ordinal);
  if (index == calls_.size()) return "";
  const std::set<uint32_t>& absent = calls_[index].absent;
  const std::set<uint32_t> silent = this->silent(tag, ordinal);
  std::vector<std::string> parts;
  if (!absent.empty()) {
    const bool is_full = absent.size() == kMaxAbsent;
    parts.push_back(tell_of(
        absent, is_full ? " not entered it, and others may not have either" : " not entered it"));
  }
  if (!silent.empty()) parts.push_back(tell_of(silent, " not answered"));
  return absl::StrJoin(parts, "; ");
}

std::set<uint32_t> Attendance::silent(uint32_t tag, uint64_t ordinal) const {
  const size_t index = find(tag, ordinal);
  if (index == calls_.size()) return {};
  std::set<uint32_t> silent = calls_[index].silent;
  for (const uint32_t rank : calls_[index].absent)
    silent.erase(rank);  // the rank has answered another rank
  return silent;
}

std::set<uint32_t> Attendance::absentees(uint32_t tag, uint64_t ordinal) const {
  const size_t index = find(tag, ordinal);
  return index == calls_.size() ? std::set<uint32_t>() : calls_[index].absent;
}

}  // namespace nezha
