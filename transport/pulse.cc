// SPDX-License-Identifier: Apache-2.0
#include "transport/pulse.h"

#include <algorithm>
#include <utility>

namespace nezha {

void Pulse::begin(Nanos time, Nanos still_since) {
  *this = Pulse();
  begun_at_ = last_heard_ = granted_at_ = time;
  was_still_since_ = still_since;
}

// Small frames after a pause are confirmed fast, however long the next train takes. So a slow
// confirmation is forgotten only over seconds.
void Pulse::grant(Nanos confirmation_time, Nanos time) {
  granted_ -= (time - std::exchange(granted_at_, time)) / 50;
  granted_ = std::max(granted_, confirmation_time);
  if (moved_ < kUnknownBytes) granted_ = std::max(granted_, kUnknown);
  granted_ = std::min(granted_, kMostGranted);
}

// Two things show that small frames pass: the machine has answered some of them since, or the link
// was made anew, which took a handshake, and stands still again. A link that was made anew counts
// as no better than the one before until it has shown that it is.
Pulse::Trouble Pulse::find_trouble(Nanos owed, Nanos mute, Nanos asked, Nanos time) const {
  const bool is_remade = was_still_since_ != 0;
  const bool has_sent_little = owed > 0 && delivered_ < kLittleBytes;
  const bool has_no_answer = asked > 0 && !has_answered_;
  if (is_remade && (has_sent_little || has_no_answer)) return Trouble::kLargeFrames;
  if (owed - granted_ >= kMachineDead) {
    const bool has_spoken = owed - mute > kMachineSuspected + granted_;
    return has_spoken ? Trouble::kLargeFrames : Trouble::kMachine;
  }
  if (asked - granted_ < kProcessDead) return Trouble::kNone;
  // The peer's process made the link anew just now, and would again: so it runs.
  const bool is_new = is_remade && time - begun_at_ < 2 * kRemade;
  return is_new ? Trouble::kLargeFrames : Trouble::kProcess;
}

Pulse::State Pulse::look(const Link::Health& link, Nanos waiting_since, Nanos siblings_heard,
                         Nanos time) {
  if (link.moved > moved_) {
    moved_ = link.moved;
    moved_at_ = time;
  }
  if (link.unanswered == 0) {
    owed_since_ = 0;
  } else if (owed_since_ == 0 || link.delivered != delivered_) {
    owed_since_ = time;
  }
  delivered_ = link.delivered;
  grant(link.confirmation_time, time);
  const Nanos owed = owed_since_ == 0 ? 0 : time - owed_since_;
  // What is sent first after a pause has been owed for less long than nothing was heard. A machine
  // that sends anything is not silent, and a frame that was lost is sent again, which may take
  // longer.
  const Nanos mute = std::min(link.unanswered, owed);
  const Nanos machine = std::max<Nanos>(0, mute - granted_);

  Nanos since = waiting_since;
  if (since == 0 || (asked_at_ != 0 && asked_at_ < since)) since = asked_at_;
  const Nanos asked = since == 0 ? 0 : time - std::max(since, moved_at_);
  const Nanos process = std::max<Nanos>(0, asked - granted_);

  silence_ = std::max(machine, process);
  trouble_ = find_trouble(owed, mute, asked, time);
  if (trouble_ == Trouble::kNone) {
    still_since_ = 0;
    if (time - begun_at_ >= 2 * kRemade) was_still_since_ = 0;
  } else if (still_since_ == 0) {
    still_since_ = was_still_since_ != 0 ? was_still_since_ : time - std::max(owed, asked);
  }
  if (machine < kMachineSuspected && process < kProcessSuspected) {
    suspected_at_ = vouched_at_ = 0;
    return State::kWell;
  }
  if (suspected_at_ == 0) suspected_at_ = time;
  if (vouched_at_ == 0 && siblings_heard > suspected_at_) vouched_at_ = time;
  if (vouched_at_ == 0) return State::kSuspected;
  const Nanos vouched = time - vouched_at_;
  const bool is_dead = (machine >= kMachineDead && vouched >= kMachineMoment) ||
                       (process >= kProcessDead && vouched >= kProcessMoment);
  return is_dead ? State::kDead : State::kSuspected;
}

}  // namespace nezha
