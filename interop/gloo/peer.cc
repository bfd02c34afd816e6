// SPDX-License-Identifier: Apache-2.0
#include "interop/gloo/peer.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "interop/gloo/completions.h"
#include "interop/gloo/transfer.h"

namespace nezha::interop {

// ---- Order -------------------------------------------------------------------------------------

void InOrder::add(Transfer& transfer) { queues_[transfer.tag()].push_back(&transfer); }

std::vector<Transfer*> InOrder::complete(Transfer& transfer) {
  transfer.set_complete();
  return take_complete(transfer.tag());
}

std::vector<Transfer*> InOrder::remove(const Transfer& transfer) {
  const auto queue = queues_.find(transfer.tag());
  if (queue == queues_.end()) return {};
  auto& transfers = queue->second;
  transfers.erase(std::remove(transfers.begin(), transfers.end(), &transfer), transfers.end());
  return take_complete(transfer.tag());
}

std::vector<Transfer*> InOrder::take_complete(uint64_t tag) {
  const auto queue = queues_.find(tag);
  auto& transfers = queue->second;
  const auto end = std::find_if(transfers.begin(), transfers.end(),
                                [](const Transfer* each) { return !each->is_complete(); });
  std::vector<Transfer*> ended(transfers.begin(), end);
  transfers.erase(transfers.begin(), end);
  if (transfers.empty()) queues_.erase(queue);
  return ended;
}

// ---- The peer ----------------------------------------------------------------------------------

absl::Status Peer::can_receive() const {
  if (!failure_.ok() || channel_ != nullptr) return failure_;
  return absl::FailedPreconditionError(
      absl::StrCat("rank ", rank_, " is not connected; connect the context first"));
}

absl::Status Peer::can_send() const {
  if (absl::Status status = can_receive(); !status.ok()) return status;
  if (channel_->has_left_in_order(kGlooJob.low)) return channel_->left_error();
  return channel_->failure();
}

void Peer::remove(const Transfer& transfer) { std::erase(open_, &transfer); }

void Peer::end(const std::vector<Transfer*>& transfers) {
  for (Transfer* ended : transfers) {
    remove(*ended);
    ended->owner().end(*ended, rank_);
  }
}

void Peer::complete(InOrder& order, Transfer& transfer) { end(order.complete(transfer)); }

void Peer::withdraw(InOrder& order, const Transfer& transfer) { end(order.remove(transfer)); }

void Peer::fail(const absl::Status& why) {
  if (!failure_.ok()) return;
  failure_ = why;
  const std::vector<Transfer*> open = open_;
  for (Transfer* transfer : open) {
    // The transfer may have ended because an earlier one was withdrawn.
    const bool is_open = std::find(open_.begin(), open_.end(), transfer) != open_.end();
    if (!is_open || !transfer->fails_with(*this)) continue;
    transfer->withdraw();
    transfer->owner().fail(*transfer, failure_);
  }
}

}  // namespace nezha::interop
