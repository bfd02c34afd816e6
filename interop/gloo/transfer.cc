// SPDX-License-Identifier: Apache-2.0
#include "interop/gloo/transfer.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "interop/gloo/completions.h"
#include "interop/gloo/peer.h"

namespace nezha::interop {
namespace {

constexpr size_t kPeersDescribed = 4;  // peers, in an error

}  // namespace

void Transfer::move(size_t bytes) {
  left_ -= bytes;
  owner_.note_moved(bytes);
}

// ---- A send ------------------------------------------------------------------------------------

void Sending::start(const std::byte* data, size_t bytes) {
  send(data, bytes, 0, {.is_synchronous = true});
}

void Sending::start_bound(const std::byte* data, size_t bytes, uint64_t place) {
  send(data, bytes, place, {.is_copied = bytes <= kMostCopied});
}

void Sending::send(const std::byte* data, size_t bytes, uint64_t place, const Route& route) {
  set_left(bytes);
  peer_.add(*this);
  peer_.sends().add(*this);
  Channel& channel = *peer_.channel();
  OutMessage* message = channel.open(
      {.context = kGlooJob.low, .tag = tag(), .signature = place, .total = bytes}, route, this);
  message_ = message;
  if (bytes > 0) channel.push(*message, 0, data, bytes);
  if (message_ != nullptr) channel.settle(*message_);  // null: the send has failed
}

void Sending::settled() {
  message_ = nullptr;
  peer_.complete(peer_.sends(), *this);
}

void Sending::failed(const absl::Status& why) { peer_.fail(why); }

void Sending::withdraw() {
  if (message_ != nullptr) peer_.channel()->abandon(*std::exchange(message_, nullptr));
  peer_.remove(*this);
  peer_.withdraw(peer_.sends(), *this);
}

std::string Sending::describe() const {
  return absl::StrCat("to rank ", peer_.rank(), " (", peer_.channel()->describe(), ")");
}

// ---- A receive ---------------------------------------------------------------------------------

Receiving::Receiving(Completions& owner, const std::vector<Peer*>& peers, uint64_t tag,
                     std::function<void()> on_match)
    : Transfer(owner, tag), claims_(peers.size()), on_match_(std::move(on_match)) {
  for (size_t i = 0; i < peers.size(); ++i) {
    claims_[i].receiving = this;
    claims_[i].peer = peers[i];
  }
}

void Receiving::start(std::byte* memory, size_t room) {
  memory_ = memory;
  room_ = room;
  set_left(room);
  for (Claim& claim : claims_) claim.peer->add(*this);
  // Posts first to the peer whose message has waited longest. Otherwise one rank would be served
  // before the others again and again.
  const auto first = std::min_element(
      claims_.begin(), claims_.end(),
      [this](const Claim& a, const Claim& b) { return waiting_since(a) < waiting_since(b); });
  if (!post(*first)) return;
  for (auto claim = claims_.begin(); claim != claims_.end(); ++claim) {
    if (claim != first && !post(*claim)) return;
  }
}

Nanos Receiving::waiting_since(const Claim& claim) const {
  const auto since = claim.peer->channel()->waiting_since(kGlooJob.low, tag());
  return since.value_or(std::numeric_limits<Nanos>::max());
}

bool Receiving::post(Claim& claim) {
  claim.is_open = true;
  Inbox::Ticket* ticket = claim.peer->channel()->post(
      {.context = kGlooJob.low, .tag = tag(), .total = room_}, &claim, /*asks=*/true);
  if (!claim.is_open) return false;  // the ticket is gone already
  claim.ticket = ticket;
  return match_ == nullptr;
}

void Receiving::withdraw() {
  for (Claim& claim : claims_) {
    claim.withdraw();
    claim.peer->remove(*this);
  }
  if (match_ != nullptr) match_->peer->withdraw(match_->peer->receives(), *this);
}

// If a rank has left in good order, a receive from several ranks goes on with the others.
bool Receiving::fails_with(Peer& peer) {
  const bool is_in_order = match_ == nullptr && peer.channel() != nullptr &&
                           peer.channel()->has_left_in_order(kGlooJob.low);
  bool has_others = false;
  for (Claim& claim : claims_) {
    if (claim.peer != &peer) {
      has_others |= claim.is_open;
    } else if (is_in_order) {
      claim.withdraw();
    }
  }
  return !is_in_order || !has_others;
}

std::string Receiving::describe() const {
  if (match_ != nullptr) {
    return absl::StrCat("from rank ", match_->peer->rank(), ", received ", room_ - left(), " of ",
                        room_, " bytes (", match_->peer->channel()->describe(), ")");
  }
  std::vector<std::string> parts;
  for (const Claim& claim : claims_) {
    if (!claim.is_open || parts.size() == kPeersDescribed) continue;
    parts.push_back(
        absl::StrCat("rank ", claim.peer->rank(), " (", claim.peer->channel()->describe(), ")"));
  }
  const char* more = claims_.size() > kPeersDescribed ? " or others" : "";
  return absl::StrCat("nothing has come from ", absl::StrJoin(parts, " or "), more);
}

// ---- One claim ---------------------------------------------------------------------------------

bool Receiving::Claim::accepts(const wire::MessageInfo& theirs) {
  Receiving& self = *receiving;
  const bool fits = theirs.signature <= self.room_ && theirs.total <= self.room_ - theirs.signature;
  if (!fits) return false;
  self.match_ = this;
  self.memory_ += theirs.signature;
  self.room_ = theirs.total;
  self.set_left(theirs.total);
  peer->receives().add(self);
  for (Claim& other : self.claims_) {
    if (&other == this) continue;
    other.withdraw();
    other.peer->remove(self);
  }
  if (self.on_match_) self.on_match_();
  return true;
}

std::byte* Receiving::Claim::place(uint64_t offset, size_t /*length*/) {
  return receiving->memory_ + offset;
}

void Receiving::Claim::landed(uint64_t /*offset*/, size_t length, Rail /*rail*/) {
  receiving->move(length);
  if (receiving->left() > 0) return;
  is_open = false;
  ticket = nullptr;  // the inbox has removed it
  peer->complete(peer->receives(), *receiving);
}

void Receiving::Claim::failed(const absl::Status& why) { peer->fail(why); }

void Receiving::Claim::mismatched(const wire::MessageInfo& theirs) {
  is_open = false;
  ticket = nullptr;  // the inbox has removed it
  const std::string at = theirs.signature > 0 ? absl::StrCat(" at byte ", theirs.signature) : "";
  peer->fail(absl::FailedPreconditionError(
      absl::StrCat("rank ", peer->rank(), " has sent ", theirs.total, " bytes", at,
                   " to a receive of ", receiving->room_, " bytes (slot ", receiving->tag(), ")")));
}

void Receiving::Claim::withdraw() {
  if (!std::exchange(is_open, false)) return;
  if (ticket != nullptr) peer->channel()->cancel(std::exchange(ticket, nullptr));
}

}  // namespace nezha::interop
