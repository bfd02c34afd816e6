// SPDX-License-Identifier: Apache-2.0
#include "context/context_impl.h"

#include <algorithm>
#include <chrono>
#include <iterator>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/functional/function_ref.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/recycled.h"
#include "context/announcement.h"
#include "context/joining.h"
#include "context/lost_ranks.h"
#include "context/raise.h"
#include "context/split.h"
#include "nezha/errors.h"

namespace nezha {
namespace {

// The other ranks are told of slow operations among this many of the oldest: it is an old operation
// that blocks the others.
constexpr ptrdiff_t kTellsOf = 16;
// How long a context that has lost a rank waits for news of others that died together with it. If
// the dead rank was the one that made a connection, its peer needs Refusals::kTimeToConnect to be
// sure of the death.
constexpr Nanos kTogether = 700 * kMillisecond;
constexpr Nanos kLook = 10 * kMillisecond;  // between two checks whether more ranks are dead

}  // namespace

ContextImpl::ContextImpl(std::shared_ptr<Store> store, ContextOptions options)
    : ContextImpl(Setup(std::move(store), std::move(options))) {}

ContextImpl::ContextImpl(Setup setup)
    : setup_(std::move(setup)),
      requests_(setup_, point_to_point_.loopback()),
      engines_(setup_),
      roster_(setup_, [this] { return given_up(); }),
      roll_calls_(setup_, roster_, [this](const absl::Status& why) { on_failed(why); }),
      planner_(setup_, roster_, engines_, hosts_, running_, *this),
      starter_(setup_, roster_, *this) {}

ContextImpl::~ContextImpl() { leave(); }

void ContextImpl::check_process() const {
  if (is_inherited()) throw InvalidArgument(prefixed(setup_.rank_of, kInherited));
}

// ---- Coming to be, and the end -----------------------------------------------------------------

void ContextImpl::join() {
  try {
    join_group();
  } catch (const TimeoutError&) {
    throw;  // leaves no refusal: perhaps it is the store that does not answer
  } catch (const std::bad_alloc&) {
    const absl::Status why = caught_status();
    refuse(absl::string_view(why.message()));
    raise(setup_.rank_of, why);
  } catch (const std::exception& error) {
    absl::string_view why(error.what());
    absl::ConsumePrefix(&why, prefixed(setup_.rank_of, ""));
    refuse(why);
    throw;
  }
}

void ContextImpl::join_group() {
  Joining joining(setup_, roster_);
  joining.prepare();
  if (setup_.rank() == 0) refuse_unless(setup_, planner_.load_table());
  enter();
  joining.publish();
  announce(setup_, roster_.core_share());
}

// This rank cannot join. Tells the others why.
void ContextImpl::refuse(absl::string_view why) {
  leave();  // frees the devices' descriptors, which the store may need
  setup_.endpoint.reset();
  setup_.directory->refuse(setup_.rank(), why);
}

// From here on other ranks may connect for this context.
void ContextImpl::enter() {
  Progress::Guard guard(progress());
  roster_.form();
  refuse_unless(setup_, setup_.endpoint->join(setup_.job, this));
  planner_.open();
}

std::unique_ptr<ContextImpl> ContextImpl::split(int color, int key) {
  const Nanos deadline = now() + to_nanos(*setup_.options.timeout);
  SplitTable table(setup_.size());
  table.set(setup_.rank(), {color, key, UniqueId::random()});
  sum(table.words(), deadline);
  std::unique_ptr<ContextImpl> child;
  if (color >= 0) {
    const std::vector<int> group = table.group_of(setup_.rank());
    child = std::make_unique<ContextImpl>(Setup(setup_, group, table.vote(group.front()).id));
    child->enter();
    child->roster_.take_channels(roster_, group);
    announce(child->setup_, child->roster_.core_share());
  }
  // A rank refuses connections for a context that it has not entered, so no rank goes on before all
  // have entered.
  std::vector<uint64_t> nothing(1);
  sum(nothing, deadline);
  return child;
}

// Sums the words over all ranks, in place.
void ContextImpl::sum(std::vector<uint64_t>& words, Nanos deadline) {
  AllreduceOptions options(nullptr);
  options.setOutput(words.data(), words.size());
  options.setTag(kOwnTag);
  const Nanos left = std::max(deadline - now(), kMillisecond);
  options.setTimeout(std::chrono::milliseconds(left / kMillisecond));
  Handle(start(requests_.make(options))).wait();
}

void ContextImpl::leave() {
  if (setup_.endpoint == nullptr) return;
  {
    Progress::Guard guard(progress());
    if (!running_.empty() || !point_to_point_.is_idle()) {
      on_failed(absl::CancelledError("the context was destroyed with operations in flight"));
    }
    starter_.close();
    planner_.stop_measuring();
  }
  starter_.join();
  {
    Progress::Guard guard(progress());
    planner_.close();
    loss_alarm_.reset();
    setup_.endpoint->leave(setup_.job, this);
    progress().run_deferred();
  }
  planner_.save();
}

// Returns an error if the context is broken or is being destroyed. Callers hold the lock.
absl::Status ContextImpl::given_up() const {
  if (starter_.is_closing()) return absl::CancelledError("the context is being destroyed");
  return broken_;
}

// ---- Operations --------------------------------------------------------------------------------

std::shared_ptr<RunningOperation> ContextImpl::start(Request request) {
  const bool is_exchange = request.exchange != nullptr;
  RunningOperationOwner& owner = is_exchange ? point_to_point_.owner() : *this;
  auto operation = std::allocate_shared<RunningOperation>(RecyclingAllocator<RunningOperation>(),
                                                          owner, setup_, std::move(request));
  Progress::Guard guard(progress());
  if (!broken_.ok()) raise(setup_.rank_of, broken_);
  try {
    if (is_exchange) {
      point_to_point_.begin(operation);
      launch_in_turn(operation);
    } else {
      begin(operation);
    }
  } catch (const OutOfMemory&) {
    on_failed(caught_status());
  } catch (...) {
    setup_.endpoint->on_exception(caught_status(), false);
  }
  if (!broken_.ok()) operation->fail(broken_);  // it may not be among the running ones
  progress().run_deferred();
  return operation;
}

void ContextImpl::give_up(const absl::Status& why) {
  Progress::Guard guard(progress());
  break_context(with_lost(why), static_cast<uint32_t>(setup_.rank()));
  progress().run_deferred();
  raise(setup_.rank_of, broken_);
}

void ContextImpl::begin(const std::shared_ptr<RunningOperation>& operation) {
  const Request& request = operation->request();
  running_.push_back(operation);
  operation->begin(roll_calls_.enter(request));
  roll_calls_.on_entered(request);
  if (operation->over()) {
    // Another rank has called another operation by this tag.
  } else if (!request.prepared.ok()) {
    on_failed(request.prepared);
  } else {
    launch_in_turn(operation);
  }
}

void ContextImpl::launch_in_turn(const std::shared_ptr<RunningOperation>& operation) {
  if (starter_.lets_pass(*operation) && knows_peers(*operation)) {
    launch(operation);
  } else {
    starter_.add(operation);
  }
}

void ContextImpl::for_each_peer(const RunningOperation& operation,
                                absl::FunctionRef<void(int rank)> call) const {
  const Group& group = roster_.group();
  const Request& request = operation.request();
  const auto call_each = [&](const std::vector<int>& ranks) {
    for (const int rank : ranks) {
      if (rank != group.rank) call(rank);
    }
  };
  if (request.exchange != nullptr) return call_each(request.exchange->terms().peers);
  const Operation& op = request.operation;
  call_each(hosts_.known_peers(group, op, request.plan.schedule));
  if (engines_.empty() || group.size == 1) return;
  Operation repair;  // repairs go around the ring
  call_each(hosts_.known_peers(group, repair, ScheduleKind::kRing));
  Operation gate;
  gate.collective = Collective::kBarrier;
  const bool has_gate = op.collective != Collective::kAllreduce && op.blocks == nullptr;
  if (has_gate) call_each(hosts_.known_peers(group, gate, ScheduleKind::kDissemination));
}

bool ContextImpl::knows_peers(const RunningOperation& operation) const {
  bool are_known = true;
  for_each_peer(operation, [&](int rank) { are_known &= roster_.knows(rank); });
  return are_known;
}

std::vector<int> ContextImpl::unknown_peers(const RunningOperation& operation) const {
  std::vector<int> ranks;
  for_each_peer(operation, [&](int rank) { ranks.push_back(rank); });
  return roster_.unknown_among(std::move(ranks));
}

// While one operation waits for a plan, later ones wait behind it.
void ContextImpl::launch(const std::shared_ptr<RunningOperation>& operation) {
  if (operation->request().exchange != nullptr) {
    return PointToPoint::launch(*operation, roster_.group());
  }
  auto assignment = planner_.assign(*operation);
  if (!assignment || !held_.empty()) {
    operation->waits_for(planner_.why_held());
    held_.push_back(operation);
    return;
  }
  planner_.note_disturbance(*operation);
  operation->start(roster_.group(), *std::move(assignment));
}

void ContextImpl::on_released() {
  for (const auto& operation : std::exchange(held_, {})) {
    if (!operation->over()) launch(operation);
  }
}

bool ContextImpl::has_started(const OperationId& operation) const {
  if (!roll_calls_.has_entered(operation) || starter_.holds(operation)) return false;
  return std::none_of(held_.begin(), held_.end(),
                      [&](const auto& held) { return held->id() == operation; });
}

void ContextImpl::on_operation_slow(const RunningOperation& operation) {
  const auto oldest_end = running_.begin() + std::min(std::ssize(running_), kTellsOf);
  const bool is_old = std::any_of(running_.begin(), oldest_end,
                                  [&](const auto& old) { return old.get() == &operation; });
  if (is_old) roll_calls_.tell_of(operation.request());
}

void ContextImpl::on_operation_over(RunningOperation& operation) {
  const absl::Cleanup forget = [&] {
    std::erase_if(running_, [&](const auto& running) { return running.get() == &operation; });
  };
  planner_.measure(operation);
}

// ---- Failure -----------------------------------------------------------------------------------

void ContextImpl::on_failed(const absl::Status& why) {
  const auto own = static_cast<uint32_t>(setup_.rank());
  if (absl::IsUnavailable(why)) return on_loss(why, own);
  if (loss_.ok()) return break_context(with_lost(why), own);
  const absl::string_view text = why.message();
  if (broken_.ok()) setup_.log->info("{}", std::string_view(text.data(), text.size()));
  break_context(loss_, loss_found_by_);
}

absl::Status ContextImpl::with_lost(const absl::Status& why) const {
  try {
    return with_lost_ranks(why, roster_.lost());
  } catch (const std::bad_alloc&) {
    return why;
  }
}

void ContextImpl::on_loss(const absl::Status& why, uint32_t first_rank) {
  if (!broken_.ok()) return;
  try {
    gather(why, first_rank);
  } catch (...) {
    if (loss_.ok()) return break_context(why, first_rank);
    break_context(loss_, loss_found_by_);
  }
}

// Ranks that die at the same time are found to be dead one by one. The context breaks a moment
// after the first loss, so that the errors of all ranks name all lost ranks.
void ContextImpl::gather(const absl::Status& why, uint32_t first_rank) {
  if (!loss_.ok()) {
    const absl::Status all =
        with_lost_ranks(with_lost_ranks(loss_, lost_ranks(why)), roster_.dead());
    if (lost_ranks(all) == lost_ranks(loss_)) return;
    loss_ = all;
    return tell_of(loss_, loss_found_by_);
  }
  const absl::Status all = with_lost_ranks(why, roster_.lost());
  if (lost_ranks(all).empty()) return break_context(why, first_rank);
  loss_ = all;
  loss_found_by_ = first_rank;
  loss_alarm_.emplace(progress(), [this, end = now() + kTogether] {
    on_loss(loss_, loss_found_by_);
    if (!broken_.ok()) return;
    if (now() >= end) return break_context(loss_, loss_found_by_);
    loss_alarm_->start(now() + kLook);
  });
  loss_alarm_->start(now() + kLook);
  tell_of(loss_, loss_found_by_);
}

void ContextImpl::break_context(const absl::Status& why, uint32_t first_rank) {
  if (!broken_.ok()) return;
  broken_ = why;
  held_.clear();
  const auto must = [this](absl::FunctionRef<void()> step) {
    try {
      step();
    } catch (...) {
      setup_.endpoint->stop(caught_status());  // the links go down, so the other ranks notice
    }
  };
  must([&] { planner_.stop(); });
  if (loss_alarm_) loss_alarm_->cancel();
  for (const auto& operation : std::exchange(running_, {})) {
    must([&] { operation->fail(broken_); });
  }
  for (const auto& operation : point_to_point_.give_up()) {
    must([&] { operation->fail(broken_); });
  }
  must([&] {
    if (on_broken_) on_broken_(broken_);
  });
  must([&] {
    setup_.log->info("{}", std::string(why.message()));
    tell_of(broken_, first_rank);
  });
}

void ContextImpl::tell_of(const absl::Status& loss, uint32_t first_rank) {
  const std::string why(loss.message());
  const bool is_own = first_rank == static_cast<uint32_t>(setup_.rank());
  const std::vector<int> lost = lost_ranks(loss);
  setup_.endpoint->broadcast_abort({setup_.job,
                                    first_rank,
                                    {lost.begin(), lost.end()},
                                    is_own ? absl::StrCat("rank ", first_rank, ": ", why) : why});
}

// Another rank may believe that this rank is dead. Its text alone would seem to be about a third
// rank, so the error here says that this rank lives.
void ContextImpl::on_abort(const wire::Abort& abort) {
  const auto own = static_cast<uint32_t>(setup_.rank());
  const bool is_of_this = abort.rank != own && absl::StrContains(abort.reason, setup_.self);
  std::vector<int> lost;
  for (const uint32_t rank : abort.lost) {
    if (rank < static_cast<uint32_t>(setup_.size())) lost.push_back(static_cast<int>(rank));
  }
  const auto why = absl::AbortedError(is_of_this ? absl::StrCat("rank ", own,
                                                                " lives, but another rank has "
                                                                "lost its connections to it: ",
                                                                abort.reason)
                                                 : abort.reason);
  on_loss(with_lost_ranks(why, lost), abort.rank);
}

void ContextImpl::on_roll_call(const wire::RollCall& call) {
  if (broken_.ok()) roll_calls_.hear(call);
}

// ---- What is seen ------------------------------------------------------------------------------

std::vector<RailStats> ContextImpl::rails() const {
  Progress::Guard guard(progress());
  std::vector<RailStats> stats;
  const Nanos time = now();
  for (const Rail rail : setup_.rails) {
    const Device* device = setup_.endpoint->device(rail);
    const RailCounters& counters = device->counters();
    const RailOutage outage = setup_.endpoint->outage(rail);
    stats.push_back({device->name(), counters.bytes_sent, counters.bytes_received,
                     counters.segments_resent, counters.failures, counters.reconnections,
                     counters.last_failure, counters.rate, outage.peers,
                     outage.peers == 0 ? 0 : static_cast<double>(time - outage.since) / kSecond,
                     outage.why, setup_.endpoint->lossy_peers(rail)});
  }
  engines_.add_stats(stats);
  return stats;
}

BalanceStats ContextImpl::balance() const {
  Progress::Guard guard(progress());
  return planner_.balance();
}

}  // namespace nezha
