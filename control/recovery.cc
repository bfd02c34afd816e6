// SPDX-License-Identifier: Apache-2.0
#include "control/recovery.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace nezha {
namespace {

// What the ranks report of one operation.
struct Account {
  OperationId operation;
  std::vector<std::pair<int, const ChunkMap*>> final;  // each rank's
  ChunkMap missing;                                    // what one rank or more lacks
};

// Returns the missing ranges as pieces, each from a rank that has it or from nobody, in order of
// offset.
std::vector<Repair::Piece> pieces_of(const Account& account) {
  std::vector<Repair::Piece> pieces;
  ChunkMap rest = account.missing;
  const auto take = [&](const ChunkMap& ranges, int source) {
    for (const Range& range : ranges) pieces.push_back({range, source});
  };
  for (const auto& [rank, final] : account.final) {
    take(intersection(rest, *final), rank);
    rest = difference(rest, *final);
  }
  take(rest, Repair::kNobody);
  std::sort(pieces.begin(), pieces.end(),
            [](const auto& a, const auto& b) { return a.range.offset < b.range.offset; });
  return pieces;
}

}  // namespace

bool RecoveryCoordinator::is_lost(int lane) const {
  return std::find(lost_.begin(), lost_.end(), lane) != lost_.end();
}

bool RecoveryCoordinator::lose(int lane) {
  if (is_lost(lane)) return false;
  lost_.push_back(lane);
  return lost_.size() == 1 && begin();
}

bool RecoveryCoordinator::next() { return !is_recovering() && !lost_.empty() && begin(); }

bool RecoveryCoordinator::begin() {
  ++epoch_;
  missing_ = reports_.size();
  std::fill(reports_.begin(), reports_.end(), std::nullopt);
  return true;
}

absl::StatusOr<std::optional<std::vector<Repair>>> RecoveryCoordinator::report(
    int rank, uint32_t epoch, std::vector<FrozenPart> parts) {
  const auto index = static_cast<size_t>(rank);
  if (rank < 0 || index >= reports_.size() || !is_recovering() || epoch != epoch_ ||
      reports_[index]) {
    return absl::InvalidArgumentError(absl::StrCat(
        "rank ", rank, " reports what is final for epoch ", epoch, ", which it was not asked for"));
  }
  reports_[index] = std::move(parts);
  if (--missing_ > 0) return std::nullopt;
  lost_.pop_front();
  return repairs();
}

std::vector<Repair> RecoveryCoordinator::repairs() const {
  absl::flat_hash_map<OperationId, size_t> places;
  std::vector<Account> accounts;  // in the order of the reports, which keeps each tag's order
  for (size_t rank = 0; rank < reports_.size(); ++rank) {
    for (const FrozenPart& part : *reports_[rank]) {
      const auto [place, is_new] = places.try_emplace(part.operation, accounts.size());
      if (is_new) accounts.push_back({part.operation, {}, {}});
      Account& account = accounts[place->second];
      if (!part.final.empty()) account.final.emplace_back(static_cast<int>(rank), &part.final);
      for (const Range& range : part.missing) add(account.missing, range);
    }
  }
  std::vector<Repair> repairs;
  for (const Account& account : accounts) {
    if (account.missing.empty()) continue;  // every rank has the whole part
    Repair& repair = repairs.emplace_back();
    repair.operation = account.operation;
    if (!account.final.empty()) repair.pieces = pieces_of(account);
  }
  return repairs;
}

std::vector<int> RecoveryCoordinator::missing() const {
  std::vector<int> ranks;
  for (size_t rank = 0; is_recovering() && rank < reports_.size(); ++rank) {
    if (!reports_[rank]) ranks.push_back(static_cast<int>(rank));
  }
  return ranks;
}

}  // namespace nezha
