// SPDX-License-Identifier: Apache-2.0
#include "transport/endpoint.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/host.h"
#include "common/log.h"
#include "common/out_of_memory.h"
#include "transport/held_memory.h"

namespace nezha {
namespace {

// The pool's blocks are held until they go back to the allocator.
BufferPool::Listener holder() {
  return {.came =
              [](const std::byte* block, size_t bytes) noexcept {
                HeldMemory::of_process().hold({block, bytes});
              },
          .goes =
              [](const std::byte* block, size_t bytes) noexcept {
                HeldMemory::of_process().release({block, bytes});
              }};
}

}  // namespace

absl::StatusOr<std::shared_ptr<Endpoint>> Endpoint::create() {
  auto progress = Progress::create();
  if (!progress.ok()) return progress.status();
  return std::shared_ptr<Endpoint>(new Endpoint(*std::move(progress)));
}

Endpoint::Endpoint(std::unique_ptr<Progress> progress)
    : pool_(holder()), progress_(std::move(progress)) {
  keep_reserve();
  // Both are made now, while there is memory.
  log();
  HeldMemory::of_process();
  Progress::Guard guard(*progress_);
  progress_->set_exception_listener(
      [this](const absl::Status& what, bool is_known) { on_exception(what, is_known); });
}

void Endpoint::on_exception(const absl::Status& what, bool is_known) {
  for (const auto& [job, listener] : jobs_) listener->on_failed(what);
  if (!is_known) stop(what);
}

void Endpoint::stop(const absl::Status& why) noexcept {
  for (const auto& [id, channel] : channels_) channel->stop(why);
}

Endpoint::~Endpoint() {
  {
    Progress::Guard guard(*progress_);
    drain(guard);
    for (auto& [id, channel] : channels_) channel->shut_down();
    progress_->run_deferred();  // last: nothing below may be called back
    channels_.clear();
    devices_.clear();
  }
  progress_.reset();
}

void Endpoint::say_goodbye() {
  Progress::Guard guard(*progress_);
  drain(guard);
}

void Endpoint::drain(Progress::Guard& guard) {
  progress_->run_deferred();
  for (auto& [id, channel] : channels_) channel->say_goodbye();
  const Nanos deadline = now() + kLinger;
  const auto drained = [&] {
    return std::all_of(channels_.begin(), channels_.end(),
                       [](const auto& entry) { return entry.second->drained(); });
  };
  while (!drained() && now() < deadline) {
    Waiter tick;
    progress_->wait(guard, tick, now() + kMillisecond);
  }
}

absl::StatusOr<Rail> Endpoint::open_device(const std::string& uri, const DeviceFactory& make) {
  const auto known = rails_by_uri_.find(uri);
  if (known != rails_by_uri_.end()) return known->second;
  const auto rail = static_cast<Rail>(devices_.size());
  if (rail == kMaxRails) {
    return absl::OutOfRangeError(absl::StrCat("opening it would give ", process_name(), " ",
                                              rail + 1, " rails; a process has at most ",
                                              kMaxRails));
  }
  auto device = make(*progress_, *this, rail);
  if (!device.ok()) return device.status();
  for (const auto& other : devices_) {
    if (other->name() != (*device)->name()) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("another device already has the rail name '", other->name(),
                     "'; give this one a name of its own with ?rail=NAME"));
  }
  devices_.push_back(*std::move(device));
  rails_by_uri_[uri] = rail;
  limit_threads();
  return rail;
}

void Endpoint::set_spare_threads(int threads, int ranks) {
  spare_threads_ = threads;
  ranks_here_ = ranks;
  limit_threads();
}

void Endpoint::limit_threads() {
  progress_->set_most_threads(devices_.size() > 1 ? spare_threads_ : 0, ranks_here_);
}

absl::Status Endpoint::join(const UniqueId& job, JobListener* listener) {
  if (jobs_.try_emplace(job, listener).second) return absl::OkStatus();
  return absl::AlreadyExistsError(absl::StrCat(
      process_name(), " has a rank of the context already; each rank needs a process of its own"));
}

void Endpoint::leave(const UniqueId& job, const JobListener* listener) {
  const auto entry = jobs_.find(job);
  if (entry == jobs_.end() || entry->second != listener) return;
  jobs_.erase(entry);
  if (left_.size() == kMaxLeft) left_.pop_front();
  left_.push_back(job);
  for (auto& [id, channel] : channels_) channel->leave(job);
}

Device* Endpoint::device(Rail rail) {
  const auto index = static_cast<size_t>(rail);
  return index < devices_.size() ? devices_[index].get() : nullptr;
}

RailOutage Endpoint::outage(Rail rail) const {
  RailOutage outage;
  Channel* first = nullptr;
  for (const auto& [id, channel] : channels_) {
    const Nanos since = channel->missing_since(rail);
    if (since == 0) continue;
    outage.peers += 1;
    if (first != nullptr && outage.since <= since) continue;
    first = channel.get();
    outage.since = since;
  }
  if (first != nullptr) outage.why = first->why_missing(rail);
  return outage;
}

uint64_t Endpoint::lossy_peers(Rail rail) const {
  const auto is_lossy = [rail](const auto& entry) { return entry.second->is_lossy(rail); };
  return static_cast<uint64_t>(std::count_if(channels_.begin(), channels_.end(), is_lossy));
}

Channel& Endpoint::channel(const UniqueId& peer) {
  const auto known = channels_.find(peer);
  if (known != channels_.end()) return *known->second;
  ChannelOwner& self = *this;
  return *channels_.emplace(peer, std::make_unique<Channel>(self, peer)).first->second;
}

void Endpoint::broadcast_abort(const wire::Abort& abort) {
  std::erase_if(aborts_, [&](const wire::Abort& old) { return old.context == abort.context; });
  if (aborts_.size() == kMaxAborts) aborts_.pop_front();
  aborts_.push_back(abort);
  for (auto& [id, channel] : channels_) channel->send_abort(abort);
}

Membership Endpoint::membership(const UniqueId& job) const {
  if (jobs_.contains(job)) return Membership::kMember;
  const bool has_left = std::find(left_.begin(), left_.end(), job) != left_.end();
  return has_left ? Membership::kLeft : Membership::kUnknown;
}

void Endpoint::on_abort(const wire::Abort& abort) {
  const auto entry = jobs_.find(abort.context);
  if (entry != jobs_.end()) entry->second->on_abort(abort);
}

void Endpoint::broadcast_roll_call(const wire::RollCall& call) {
  for (auto& [id, channel] : channels_) channel->send_roll_call(call);
}

void Endpoint::on_roll_call(const wire::RollCall& call) {
  const auto entry = jobs_.find(call.context);
  if (entry != jobs_.end()) entry->second->on_roll_call(call);
}

void Endpoint::on_peer_gone(const UniqueId& job, const absl::Status& why) {
  const auto entry = jobs_.find(job);
  if (entry != jobs_.end()) entry->second->on_failed(why);
}

void Endpoint::on_suspicion(Rail rail) {
  for (auto& [id, channel] : channels_) channel->ask(rail);
}

wire::Welcome Endpoint::on_hello(Rail rail, const wire::Hello& hello) {
  const auto refuse = [&](wire::WelcomeCode code) {
    return wire::Welcome{code, wire::kVersion, hello.generation};
  };
  if (hello.target != process_) return refuse(wire::WelcomeCode::kWrongTarget);
  const auto known = channels_.find(hello.source);
  // A peer that connects for a context that broke here must hear why.
  const bool is_broken = std::any_of(aborts_.begin(), aborts_.end(),
                                     [&](const auto& abort) { return abort.context == hello.job; });
  const bool is_wanted = jobs_.contains(hello.job) || is_broken ||
                         (known != channels_.end() && known->second->is_in(hello.job));
  if (!is_wanted) return refuse(wire::WelcomeCode::kUnknownJob);
  if (hello.source == process_ || hello.rail != device(rail)->name()) {
    return refuse(wire::WelcomeCode::kNoRail);
  }
  if (channels_.size() >= kMaxChannels && known == channels_.end()) {
    return refuse(wire::WelcomeCode::kClosing);
  }
  return channel(hello.source).on_hello(rail, hello);
}

// Making a link may take so long that it is not wanted any more.
void Endpoint::on_accepted(Rail rail, const wire::Hello& hello, std::unique_ptr<Link> link) {
  if (on_hello(rail, hello).code != wire::WelcomeCode::kAccepted) return;
  channel(hello.source).on_accepted(rail, hello, std::move(link));
}

void Endpoint::on_carrier(Rail rail, bool up, absl::string_view why) {
  for (auto& [id, channel] : channels_) channel->on_carrier(rail, up, why);
}

}  // namespace nezha
