// SPDX-License-Identifier: Apache-2.0
#include "context/roll_calls.h"

#include <set>
#include <utility>

#include "collectives/signature.h"

namespace nezha {

void RollCalls::on_entered(const Request& request) {
  const auto [tag, ordinal] = request.operation.id();
  // Other ranks must not name this rank as absent any more.
  if (attendance_.has_said_absent(static_cast<uint32_t>(setup_.rank()), tag, ordinal)) {
    tell_of(request);
  }
  check({tag, ordinal});
}

void RollCalls::check(const OperationId& operation) {
  const auto [tag, ordinal] = operation;
  const auto other = attendance_.other(tag, ordinal);
  if (!other.has_value()) return;
  fail_(disagreement_error(setup_.rank(), other->rank, tag, attendance_.signature(tag, ordinal),
                           other->signature));
}

void RollCalls::tell(const Request& request, wire::RollCallKind kind) {
  hear({.context = setup_.job,
        .tag = request.operation.tag,
        .rank = static_cast<uint32_t>(setup_.rank()),
        .ordinal = request.operation.ordinal,
        .signature = request.signature,
        .kind = kind});
}

void RollCalls::hear(const wire::RollCall& call) {
  if (call.rank >= static_cast<uint32_t>(setup_.size()) || !attendance_.hear(call)) return;
  setup_.endpoint->broadcast_roll_call(call);
  const bool is_of_this = call.rank == static_cast<uint32_t>(setup_.rank());
  if (is_of_this && call.kind == wire::RollCallKind::kSilent) return deny_silence(call);
  if (call.kind == wire::RollCallKind::kWhoIsAbsent) tell_of_silence(call);
  const OperationId operation{call.tag, call.ordinal};
  if (has_entered(operation)) {
    check(operation);
  } else if (call.kind == wire::RollCallKind::kWhoIsAbsent) {
    hear({.context = setup_.job,
          .tag = call.tag,
          .rank = static_cast<uint32_t>(setup_.rank()),
          .ordinal = call.ordinal,
          .kind = wire::RollCallKind::kAbsent});
  }
}

// Another rank says that this rank does not answer. Answers.
void RollCalls::deny_silence(const wire::RollCall& claim) {
  wire::RollCall answer = claim;
  const bool is_in_it = has_entered({claim.tag, claim.ordinal});
  answer.kind = is_in_it ? wire::RollCallKind::kEntered : wire::RollCallKind::kAbsent;
  answer.signature = is_in_it ? attendance_.signature(claim.tag, claim.ordinal) : 0;
  if (is_in_it && answer.signature == 0) return;  // entered so long ago that nobody waits for it
  hear(answer);
}

// Reports the ranks that this rank waits for and that no longer answer.
void RollCalls::tell_of_silence(const wire::RollCall& question) {
  for (int rank = 0; rank < setup_.size(); ++rank) {
    if (!roster_.knows(rank) || !roster_.channel(rank)->is_silent()) continue;
    wire::RollCall answer = question;
    answer.rank = static_cast<uint32_t>(rank);
    answer.signature = 0;
    answer.kind = wire::RollCallKind::kSilent;
    hear(answer);
  }
}

// Ranks that have not entered the operation are named only if no other reason is known: they may be
// waiting for a rank that does not answer.
std::vector<int> RollCalls::missing(const OperationId& operation,
                                    const std::vector<int>& awaited) const {
  std::set<uint32_t> ranks = attendance_.silent(operation.tag, operation.ordinal);
  ranks.insert(awaited.begin(), awaited.end());
  for (int rank = 0; rank < setup_.size(); ++rank) {
    const Channel* channel = roster_.channel(rank);
    if (channel == nullptr) continue;
    if (channel->is_silent() || channel->is_cut_off()) ranks.insert(static_cast<uint32_t>(rank));
  }
  if (ranks.empty()) ranks = attendance_.absentees(operation.tag, operation.ordinal);
  return {ranks.begin(), ranks.end()};
}

}  // namespace nezha
