#include "transport/pulse.h"

#include <algorithm>
#include <utility>

namespace nezha {

void Pulse::begin(Nanos time) {
  *this = Pulse();
  last_heard_ = granted_at_ = time;
}

// Small frames after a pause are confirmed fast, whatever the next train takes: what was slow is
// forgotten within seconds only.
void Pulse::grant(const Link& link, Nanos time) {
  granted_ -= (time - std::exchange(granted_at_, time)) / 50;
  granted_ = std::max(granted_, link.confirmation_time());
  if (moved_ < kUnknownBytes) granted_ = std::max(granted_, kUnknown);
  granted_ = std::min(granted_, kMostGranted);
}

Pulse::State Pulse::look(const Link& link, Nanos waiting_since, Nanos siblings_heard, Nanos time) {
  const uint64_t moved = link.moved();
  if (moved != moved_) {
    moved_ = moved;
    moved_at_ = time;
    owed_since_ = 0;
  }
  const Nanos unanswered = link.unanswered();
  if (unanswered == 0) {
    owed_since_ = 0;
  } else if (owed_since_ == 0) {
    owed_since_ = time;
  }
  grant(link, time);
  // What was sent first after a pause is owed for less long than nothing was heard.
  const Nanos owed = unanswered == 0 ? 0 : std::min(unanswered, time - owed_since_);
  const Nanos machine = std::max<Nanos>(0, owed - granted_);

  Nanos since = waiting_since;
  if (since == 0 || (asked_at_ != 0 && asked_at_ < since)) since = asked_at_;
  const Nanos asked = since == 0 ? 0 : time - std::max(since, moved_at_);
  const Nanos process = std::max<Nanos>(0, asked - granted_);

  silence_ = std::max(machine, process);
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
