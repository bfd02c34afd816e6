// SPDX-License-Identifier: Apache-2.0
#include "interop/gloo/peer.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "interop/gloo/completions.h"
#include "interop/gloo/transfer.h"

namespace nezha::interop {

// ---- Order -------------------------------------------------------------------------------------

void InOrder::add(Transfer& transfer) { queues_[transfer.tag()].push_back(&transfer); }

void InOrder::remove(const Transfer& transfer) {
  const auto queue = queues_.find(transfer.tag());
  if (queue == queues_.end()) return;
  auto& transfers = queue->second;
  transfers.erase(std::remove(transfers.begin(), transfers.end(), &transfer), transfers.end());
  if (transfers.empty()) queues_.erase(queue);
}

std::vector<Transfer*> InOrder::complete(Transfer& transfer) {
  transfer.set_complete();
  const auto queue = queues_.find(transfer.tag());
  auto& transfers = queue->second;
  const auto end = std::find_if(transfers.begin(), transfers.end(),
                                [](const Transfer* each) { return !each->is_complete(); });
  std::vector<Transfer*> ended(transfers.begin(), end);
  transfers.erase(transfers.begin(), end);
  if (transfers.empty()) queues_.erase(queue);
  return ended;
}

// ---- The peer ----------------------------------------------------------------------------------

absl::Status Peer::status() const {
  if (!failure_.ok() || channel_ != nullptr) return failure_;
  return absl::FailedPreconditionError(
      absl::StrCat("rank ", rank_, " is not connected; connect the context first"));
}

void Peer::remove(const Transfer& transfer) { std::erase(open_, &transfer); }

void Peer::complete(InOrder& order, Transfer& transfer) {
  for (Transfer* ended : order.complete(transfer)) {
    remove(*ended);
    ended->owner().end(*ended, rank_);
  }
}

void Peer::fail(const absl::Status& why) {
  if (!failure_.ok()) return;
  failure_ = why;
  const std::vector<Transfer*> open = open_;
  for (Transfer* transfer : open) {
    if (!transfer->fails_with(*this)) continue;
    transfer->withdraw();
    transfer->owner().fail(*transfer, failure_);
  }
}

}  // namespace nezha::interop
