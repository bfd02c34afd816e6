// SPDX-License-Identifier: Apache-2.0
// How a context comes to be: by the records that its ranks publish, or by a split.
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "common/environment.h"
#include "common/host.h"
#include "common/out_of_memory.h"
#include "common/port_range.h"
#include "context/auto_rails.h"
#include "context/context_impl.h"
#include "context/lost_ranks.h"
#include "context/rails.h"
#include "context/raise.h"
#include "context/shared_endpoint.h"
#include "context/split.h"
#include "nezha/errors.h"

namespace nezha {
namespace {

// Longer than the kernel takes to check an address for duplicates.
constexpr Nanos kAddressWait = 5 * kSecond;

}  // namespace

void ContextImpl::join() {
  try {
    join_group();
  } catch (const TimeoutError&) {
    throw;  // it may be the store that does not answer
  } catch (const std::bad_alloc&) {
    const absl::Status why = caught_status();
    refuse(absl::string_view(why.message()));
    raise(rank_of_, why);
  } catch (const std::exception& error) {
    absl::string_view why(error.what());
    absl::ConsumePrefix(&why, prefixed(rank_of_, ""));
    refuse(why);
    throw;
  }
}

// This rank cannot join: the others learn why.
void ContextImpl::refuse(absl::string_view why) {
  leave();  // the devices may have the descriptors that the store needs
  endpoint_.reset();
  directory_->refuse(options_.rank, why);
}

void ContextImpl::refuse_unless(const absl::Status& status) const {
  if (status.ok()) return;
  if (absl::IsResourceExhausted(status)) raise(rank_of_, status);
  throw InvalidArgument(prefixed(rank_of_, absl::string_view(status.message())));
}

void ContextImpl::join_group() {
  refuse_unless(check_environment());
  refuse_unless(complete_own_options(options_));
  find_rails();
  take_switch_rail();
  checks_pointers_ = environment("NEZHA_CHECK_POINTERS") == "1";
  const Nanos deadline = now() + to_nanos(*options_.timeout);
  auto endpoint = shared_endpoint();
  if (!endpoint.ok()) raise(rank_of_, endpoint.status());
  endpoint_ = *std::move(endpoint);
  await_addresses(options_.rails, std::min(deadline, now() + kAddressWait));
  open_devices();
  // The id of the context is rank 0's choice; until it is known nobody's connection is accepted.
  AgreedSettings settings(options_);
  Record rank0;
  if (options_.rank == 0) {
    settings.complete(options_.rails.size());
    refuse_unless(load_table());
    job_ = UniqueId::random();
  } else {
    auto read = read_record(0, deadline);
    if (!read.ok()) raise(rank_of_, read.status());
    rank0 = *std::move(read);
    agree(rank0, settings);
    job_ = rank0.job;
  }
  refuse_unless(settings.apply(options_, algorithm_));
  if (options_.rank != 0) check_slices(rank0);
  self_ = own_record().describe(options_.rank);
  enter();
  Record own = own_record();
  own.settings = settings.encode();
  if (const absl::Status status = directory_->publish(options_.rank, own); !status.ok()) {
    raise(rank_of_, status);
  }
  announce();
}

void ContextImpl::find_rails() {
  if (!is_auto(options_.rails)) return;
  auto found = nezha::find_rails(options_.rails, *log_);
  refuse_unless(found.status());
  options_.rails = std::move(found->uris);
  chosen_ = std::move(found->interfaces);
}

// From here on other ranks may connect for this context.
void ContextImpl::enter() {
  Progress::Guard guard(endpoint_->progress());
  group_ = {.rank = options_.rank,
            .size = options_.size,
            .context = job_.low,
            .channels = std::vector<Channel*>(static_cast<size_t>(options_.size), nullptr),
            .pool = &endpoint_->pool()};
  group_.rails = 0;
  for (const Rail rail : rails_) group_.rails |= rail_bit(rail);
  refuse_unless(endpoint_->join(job_, this));
  open_switch_rail();
  create_control();
}

void ContextImpl::open_devices() {
  const std::vector<Cpus> cores = cores_for(options_.rails);
  const PortRange ports = PortRange::parse(options_.ports).value_or(PortRange());
  Progress::Guard guard(endpoint_->progress());
  for (size_t i = 0; i < options_.rails.size(); ++i) {
    const std::string& uri = options_.rails[i];
    const auto make = device_factory(uri, cores[i], ports);
    refuse_unless(make.status());  // it names the rail
    const absl::StatusOr<Rail> rail = endpoint_->open_device(uri, *make);
    if (!rail.ok()) {
      refuse_unless(absl::Status(rail.status().code(),
                                 absl::StrCat("rail '", uri, "': ", rail.status().message())));
    }
    if (std::find(rails_.begin(), rails_.end(), *rail) != rails_.end()) {
      throw InvalidArgument(prefixed(rank_of_, absl::StrCat("rail '", uri, "' is named twice")));
    }
    rails_.push_back(*rail);
  }
}

Record ContextImpl::own_record() const {
  Record record;
  record.job = job_;
  record.process = endpoint_->process();
  record.host = host_name();
  record.pid = getpid();
  record.size = options_.size;
  Progress::Guard guard(endpoint_->progress());
  record.flare_rail = flare_rail();
  for (const Rail rail : rails_) {
    const Device* device = endpoint_->device(rail);
    record.devices[device->name()] = device->address();
  }
  record.interfaces = chosen_;
  return record;
}

std::string ContextImpl::flare_rail() const {
  if (!switch_rail_) return "";
  return std::string(is_switch_alone_ ? Record::kAlone : Record::kBesideOthers);
}

absl::StatusOr<Record> ContextImpl::read_record(int rank, Nanos deadline) {
  auto record = directory_->read(listed(rank), deadline, [this] {
    Progress::Guard guard(endpoint_->progress());
    if (closing_) return absl::CancelledError("the context is being destroyed");
    return broken_;
  });
  if (absl::IsDeadlineExceeded(record.status())) {
    return with_lost_ranks(record.status(), {rank});
  }
  return record;
}

void ContextImpl::agree(const Record& rank0, AgreedSettings& settings) const {
  absl::Status status = settings.adopt(rank0.settings, options_.rank);
  if (rank0.size != options_.size) {
    status = absl::FailedPreconditionError(absl::StrCat("the ranks' settings differ: the size is ",
                                                        options_.size, " at rank ", options_.rank,
                                                        " and ", rank0.size, " at rank 0"));
  }
  if (rank0.flare_rail != flare_rail()) {
    const auto has = [](const std::string& rail) {
      return absl::StrCat(rail.empty() ? "no flare rail" : "a flare rail ", rail);
    };
    status = absl::FailedPreconditionError(
        absl::StrCat("the ranks' rails differ: rank 0 has ", has(rank0.flare_rail), " and rank ",
                     options_.rank, " has ", has(flare_rail()), "; name the same on all"));
  }
  if (!status.ok()) raise(rank_of_, status);
}

// A slice goes by its rail's place in the list, which for users who name their rails is in order.
void ContextImpl::check_slices(const Record& rank0) const {
  const auto rails_of = [](const ChosenInterfaces& chosen) {
    return absl::StrJoin(chosen, ",",
                         [](std::string* out, const auto& entry) { *out += entry.first; });
  };
  std::string here = rails_of(chosen_);
  std::string there = rails_of(rank0.interfaces);
  if (options_.plan != Plan::kSlice || here == there) return;
  for (std::string* rails : {&here, &there}) {
    if (rails->empty()) *rails = "rails that are named";
  }
  throw IoError(prefixed(
      rank_of_,
      absl::StrCat("slices need the same rails on every rank, and auto finds ", here, " at rank ",
                   options_.rank, " and ", there, " at rank 0; name them, or take stripes")));
}

absl::Status ContextImpl::resolve(int rank, Nanos deadline) {
  const auto record = read_record(rank, deadline);
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
  Progress::Guard guard(endpoint_->progress());
  if (absl::Status status = check_reach(addresses); !status.ok()) {
    return absl::FailedPreconditionError(
        absl::StrCat("no rail can reach rank ", rank, " (", record->host, "): ", status.message()));
  }
  Channel& channel = endpoint_->channel(record->process);
  // One name for all contexts that share the channel.
  channel.set_peer(record->describe(listed(rank)), job_, addresses, pairs);
  group_.channels[static_cast<size_t>(rank)] = &channel;
  return absl::OkStatus();
}

// An error if none of this rank's rails can reach the address that a peer has on it.
absl::Status ContextImpl::check_reach(const std::map<std::string, std::string>& addresses) const {
  std::vector<std::string> reasons;
  for (const Rail rail : rails_) {
    const Device* device = endpoint_->device(rail);
    const auto address = addresses.find(device->name());
    if (address == addresses.end()) continue;
    const absl::Status status = device->can_reach(address->second);
    if (status.ok()) return absl::OkStatus();
    reasons.push_back(absl::StrCat(device->name(), ": ", status.message()));
  }
  return absl::FailedPreconditionError(absl::StrJoin(reasons, "; "));
}

// ---- Splitting ---------------------------------------------------------------------------------

std::unique_ptr<ContextImpl> ContextImpl::split(int color, int key) {
  const Nanos deadline = now() + to_nanos(*options_.timeout);
  SplitTable table(options_.size);
  table.set(options_.rank, {color, key, UniqueId::random()});
  sum(table.words(), deadline);
  std::unique_ptr<ContextImpl> child;
  if (color >= 0) {
    const std::vector<int> group = table.group_of(options_.rank);
    child.reset(new ContextImpl(*this, group, table.vote(group.front()).id));
    child->enter();
    child->take_channels(*this, group);
    child->announce();
  }
  // Who connects for a context that the other has not entered is turned away: nobody goes on before
  // all have.
  std::vector<uint64_t> nothing(1);
  sum(nothing, deadline);
  return child;
}

// Those that the parent has made. By them, too, a peer hears if this context breaks before it has
// spoken to that peer itself.
void ContextImpl::take_channels(const ContextImpl& parent, const std::vector<int>& group) {
  Progress::Guard guard(endpoint_->progress());
  for (size_t i = 0; i < group.size(); ++i) {
    Channel* channel = parent.group_.channels[static_cast<size_t>(group[i])];
    if (channel != nullptr) channel->join(job_);
    group_.channels[i] = channel;
  }
}

// Over the ranks, in place.
void ContextImpl::sum(std::vector<uint64_t>& words, Nanos deadline) {
  AllreduceOptions options(nullptr);
  options.setOutput(words.data(), words.size());
  options.setTag(kOwnTag);
  const Nanos left = std::max(deadline - now(), kMillisecond);
  options.setTimeout(std::chrono::milliseconds(left / kMillisecond));
  Handle(start(request(options))).wait();
}

}  // namespace nezha
