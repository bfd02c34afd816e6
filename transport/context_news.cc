// SPDX-License-Identifier: Apache-2.0
#include "transport/context_news.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace nezha {

// ---- This process ------------------------------------------------------------------------------

void ContextNews::enter(const UniqueId& job) {
  if (shared_.enter(job)) tell_of_entered();
}

void ContextNews::tell_of_entered() {
  Link* link = ports_.best_link();
  if (link == nullptr) return;
  const auto is_member = [this](const UniqueId& job) {
    return owner_.membership(job) == Membership::kMember;
  };
  for (const UniqueId& job : shared_.take_untold(is_member)) {
    link->send(wire::FrameType::kJoin, wire::encode_id(job));
  }
}

void ContextNews::close(const UniqueId& job) {
  inbox_.close_context(job.low);
  shared_.close(job);
  end_closed();
}

void ContextNews::end_closed() {
  const auto is_pending = [this](uint64_t context) {
    return outbox_.pending_of([context](uint64_t of) { return of == context; });
  };
  for (const UniqueId& job : shared_.end_closed(is_pending)) {
    ports_.ack_all();  // the peer may wait for nothing else
    tell_of_closed(job);
  }
}

// The peer hears of a broken context by an abort, which says more.
void ContextNews::tell_of_closed(const UniqueId& job) {
  if (!is_broken(job.low)) ports_.tell(wire::FrameType::kLeave, wire::encode_id(job));
}

void ContextNews::say_goodbye() {
  is_leaving_ = true;
  ports_.tell_by_all(wire::FrameType::kGoodbye, {});
}

// Goes by all links, as goodbyes do: a peer that reads a goodbye by any link has read this before.
void ContextNews::send_abort(const wire::Abort& abort) {
  if (!contains(abort.context) && !shared_.is_closed(abort.context)) return;
  ports_.tell_by_all(wire::FrameType::kAbort, wire::encode(abort));
}

void ContextNews::send_roll_call(const wire::RollCall& call) {
  if (contains(call.context)) ports_.tell(wire::FrameType::kRollCall, wire::encode(call));
}

// ---- The peer ----------------------------------------------------------------------------------

// This process may have closed the context. Then the peer is told.
void ContextNews::peer_entered(const UniqueId& job) {
  const Membership here = owner_.membership(job);
  shared_.peer_entered(job, here == Membership::kMember);
  if (here == Membership::kLeft) close(job);
  for (const wire::Abort& abort : owner_.aborts()) {
    if (abort.context == job) send_abort(abort);
  }
}

void ContextNews::peer_left(const UniqueId& job) {
  shared_.peer_left(job);
  inbox_.fail_context(job.low, left_error());
}

void ContextNews::on_frame(wire::FrameType type, absl::Span<const std::byte> body) {
  if (type == wire::FrameType::kGoodbye) {
    has_peer_left_ = true;
    ports_.ack_all_soon();
  } else if (type == wire::FrameType::kAbort) {
    if (const auto abort = wire::decode_abort(body); abort.ok()) owner_.on_abort(*abort);
  } else if (type == wire::FrameType::kRollCall) {
    if (const auto call = wire::decode_roll_call(body); call.ok()) owner_.on_roll_call(*call);
  } else if (type == wire::FrameType::kLeave) {
    if (const auto job = wire::decode_id(body); job.ok()) peer_left(*job);
  } else if (type == wire::FrameType::kJoin) {
    if (const auto job = wire::decode_id(body); job.ok()) peer_entered(*job);
  }
}

void ContextNews::link_up(Link& link) {
  repeat();
  if (is_leaving_) link.send(wire::FrameType::kGoodbye, {});
}

void ContextNews::link_down() {
  shared_.tell_again();
  repeat();
}

void ContextNews::repeat() {
  for (const wire::Abort& abort : owner_.aborts()) send_abort(abort);
  for (const UniqueId& job : shared_.closed()) tell_of_closed(job);
  tell_of_entered();
}

// ---- What is known -----------------------------------------------------------------------------

bool ContextNews::has_future() const {
  return !has_peer_left_ && !is_leaving_ &&
         shared_.has_open([this](const UniqueId& job) { return !is_broken(job.low); });
}

bool ContextNews::is_broken(uint64_t context) const {
  const auto& aborts = owner_.aborts();
  return std::any_of(aborts.begin(), aborts.end(),
                     [&](const wire::Abort& abort) { return abort.context.low == context; });
}

absl::Status ContextNews::left_error() const {
  return absl::UnavailableError(absl::StrCat(
      contact_.description(), has_peer_left_
                                  ? " has left: its process has ended, or closed all its contexts"
                                  : " has left: it closed its context"));
}

void ContextNews::fail_waiting_soon(uint64_t context) {
  if (!has_left(context)) return;
  owner_.progress().defer([this, context] {
    if (has_left(context)) inbox_.fail_context(context, left_error());
  });
}

}  // namespace nezha
