// SPDX-License-Identifier: Apache-2.0
#include "context/roster.h"

#include <unistd.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/host.h"
#include "common/launch.h"
#include "context/lost_ranks.h"
#include "context/rails.h"

namespace nezha {

// ---- Records -----------------------------------------------------------------------------------

std::string flare_rail_of(const Setup& setup) {
  if (!setup.switch_rail) return "";
  return std::string(setup.is_switch_alone ? Record::kAlone : Record::kBesideOthers);
}

Record Roster::own_record() const {
  Record record;
  record.job = setup_.job;
  record.process = setup_.endpoint->process();
  record.publication = publication_;
  record.host = host_name();
  record.cores = setup_.cores.pool;
  record.pid = getpid();
  record.size = setup_.size();
  record.flare_rail = flare_rail_of(setup_);
  record.settings = setup_.settings;
  record.interfaces = setup_.chosen;
  Progress::Guard guard(setup_.progress());
  for (const Rail rail : setup_.rails) {
    const Device* device = setup_.endpoint->device(rail);
    record.devices[device->name()] = device->address();
  }
  return record;
}

absl::StatusOr<Record> Roster::read(int rank, Nanos deadline) {
  auto record = setup_.directory->read(setup_.listed(rank), deadline, [this] {
    Progress::Guard guard(setup_.progress());
    return given_up_();
  });
  if (absl::IsDeadlineExceeded(record.status())) {
    return with_lost_ranks(record.status(), {rank});
  }
  if (record.ok()) note_cores(rank, *record);
  return record;
}

absl::Status Roster::confirm() {
  if (is_confirmed_ || setup_.is_split()) return absl::OkStatus();
  is_confirmed_ = true;
  absl::Status status = setup_.directory->confirm(setup_.rank(), own_record());
  if (!status.ok()) setup_.directory->refuse(setup_.rank(), status.message());
  return status;
}

// ---- Cores -------------------------------------------------------------------------------------

void Roster::note_cores(int rank, const Record& record) {
  if (record.cores.empty() || record.cores == setup_.cores.pool) return;
  {
    Progress::Guard guard(setup_.progress());
    if (!elsewhere_.insert(rank).second) return;
  }
  count_rail_threads();
}

CoreShare Roster::core_share() const {
  const int launched = launched_here(setup_.size());
  if (launched > 0) return {setup_.cores.count, launched};
  Progress::Guard guard(setup_.progress());
  const int ranks = setup_.size() - static_cast<int>(elsewhere_.size());
  return {setup_.cores.count, ranks, ranks == 1};
}

void Roster::count_rail_threads() const {
  if (setup_.is_split()) return;  // the other ranks share the cores, too
  const CoreShare share = core_share();
  const RailThreads threads = threads_of(setup_.options.rails, share);
  Progress::Guard guard(setup_.progress());
  setup_.endpoint->set_spare_threads(threads.spare, share.ranks);
}

// ---- Channels ----------------------------------------------------------------------------------

void Roster::form() {
  group_ = {.rank = setup_.rank(),
            .size = setup_.size(),
            .context = setup_.job.low,
            .channels = std::vector<Channel*>(static_cast<size_t>(setup_.size()), nullptr),
            .pool = &setup_.endpoint->pool(),
            .rails = 0};
  for (const Rail rail : setup_.rails) group_.rails |= rail_bit(rail);
}

absl::Status Roster::resolve(int rank, Nanos deadline) {
  const auto record = read(rank, deadline);
  if (!record.ok()) return record.status();
  const auto pairs = pair_rails(own_record().rails(), record->rails());
  if (pairs.empty()) {
    return absl::FailedPreconditionError(absl::StrCat(
        "no rail in common with rank ", rank, " (", record->host,
        "), which has: ", absl::StrJoin(record->devices, ", ", absl::PairFormatter(" at ")),
        "; rails are matched by name (?rail=NAME); nezha-bench --list-rails says what auto finds"));
  }
  std::map<std::string, std::string> addresses;
  for (const auto& [here, there] : pairs) addresses[here] = record->devices.at(there);
  Progress::Guard guard(setup_.progress());
  if (absl::Status status = check_reach(addresses); !status.ok()) {
    return absl::FailedPreconditionError(
        absl::StrCat("no rail can reach rank ", rank, " (", record->host, "): ", status.message()));
  }
  Channel& channel = setup_.endpoint->channel(record->process);
  // The name counts ranks as the directory does, so that all contexts that share the channel agree.
  channel.set_peer(record->describe(setup_.listed(rank)), setup_.job, addresses, pairs);
  group_.channels[static_cast<size_t>(rank)] = &channel;
  return absl::OkStatus();
}

// Returns an error if none of this rank's rails can reach the peer's address on that rail.
absl::Status Roster::check_reach(const std::map<std::string, std::string>& addresses) const {
  std::vector<std::string> reasons;
  for (const Rail rail : setup_.rails) {
    const Device* device = setup_.endpoint->device(rail);
    const auto address = addresses.find(device->name());
    if (address == addresses.end()) continue;
    const absl::Status status = device->can_reach(address->second);
    if (status.ok()) return absl::OkStatus();
    reasons.push_back(absl::StrCat(device->name(), ": ", status.message()));
  }
  return absl::FailedPreconditionError(absl::StrJoin(reasons, "; "));
}

void Roster::take_channels(const Roster& parent, const std::vector<int>& group) {
  Progress::Guard guard(setup_.progress());
  for (size_t i = 0; i < group.size(); ++i) {
    Channel* channel = parent.channel(group[i]);
    if (channel != nullptr) channel->join(setup_.job);
    group_.channels[i] = channel;
  }
}

std::vector<int> Roster::unknown_among(std::vector<int> ranks) const {
  std::erase_if(ranks, [this](int rank) { return knows(rank); });
  std::sort(ranks.begin(), ranks.end());
  ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
  return ranks;
}

std::vector<int> Roster::lost() const {
  std::vector<int> ranks;
  for (int rank = 0; rank < std::ssize(group_.channels); ++rank) {
    if (knows(rank) && channel(rank)->is_peer_lost(setup_.job)) ranks.push_back(rank);
  }
  return ranks;
}

std::vector<int> Roster::dead() const {
  std::vector<int> ranks;
  for (int rank = 0; rank < std::ssize(group_.channels); ++rank) {
    if (knows(rank) && channel(rank)->is_peer_dead()) ranks.push_back(rank);
  }
  return ranks;
}

bool Roster::is_cut_off() const {
  return std::any_of(group_.channels.begin(), group_.channels.end(), [](const Channel* channel) {
    return channel != nullptr && channel->is_cut_off();
  });
}

}  // namespace nezha
