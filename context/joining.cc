// SPDX-License-Identifier: Apache-2.0
#include "context/joining.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/environment.h"
#include "common/launch.h"
#include "common/port_range.h"
#include "context/auto_rails.h"
#include "context/rails.h"
#include "context/raise.h"
#include "context/shared_endpoint.h"
#include "nezha/errors.h"
#include "rails/nic_probe.h"
#include "rails/streams.h"

namespace nezha {
namespace {

// Longer than the kernel takes to check an address for duplicates.
constexpr Nanos kAddressWait = 5 * kSecond;

}  // namespace

void refuse_unless(const Setup& setup, const absl::Status& status) {
  if (status.ok()) return;
  if (absl::IsResourceExhausted(status)) raise(setup.rank_of, status);
  throw InvalidArgument(prefixed(setup.rank_of, absl::string_view(status.message())));
}

void Joining::prepare() {
  refuse_unless(setup_, check_environment());
  refuse_unless(setup_, complete_own_options(setup_.options));
  setup_.cores = usable_cores();
  find_rails();
  take_switch_rail();
  setup_.checks_pointers = environment("NEZHA_CHECK_POINTERS") == "1";
  const Nanos deadline = now() + to_nanos(*setup_.options.timeout);
  if (setup_.endpoint == nullptr) {
    auto endpoint = shared_endpoint();
    if (!endpoint.ok()) raise(setup_.rank_of, endpoint.status());
    setup_.endpoint = *std::move(endpoint);
  }
  roster_.count_rail_threads();
  await_addresses(setup_.options.rails, std::min(deadline, now() + kAddressWait));
  open_devices();
  // Rank 0 chooses the context's id, unless all ranks know it already. No connection is accepted
  // before the id is known.
  AgreedSettings settings(setup_.options);
  const bool is_known = setup_.job != UniqueId();
  if (!is_known && setup_.rank() != 0) {
    follow_rank0(settings, deadline);
  } else {
    settings.complete(setup_.options.rails.size());
    if (!is_known) setup_.job = UniqueId::random();
    refuse_unless(setup_, settings.apply(setup_.options, setup_.algorithm));
  }
  setup_.settings = settings.encode();
  setup_.self = roster_.own_record().describe(setup_.rank());
}

void Joining::follow_rank0(AgreedSettings& settings, Nanos deadline) {
  const auto rank0 = roster_.read(0, deadline);
  if (!rank0.ok()) raise(setup_.rank_of, rank0.status());
  agree(*rank0, settings);
  setup_.job = rank0->job;
  refuse_unless(setup_, settings.apply(setup_.options, setup_.algorithm));
  check_slices(*rank0);
}

void Joining::publish() {
  const absl::Status status = setup_.directory->publish(setup_.rank(), roster_.own_record());
  if (!status.ok()) raise(setup_.rank_of, status);
}

void Joining::find_rails() {
  std::vector<std::string>& rails = setup_.options.rails;
  if (is_auto(rails)) {
    auto found = nezha::find_rails(rails, *setup_.log);
    refuse_unless(setup_, found.status());
    rails = std::move(found->uris);
    setup_.chosen = std::move(found->interfaces);
  } else {
    auto named = expand_rails(rails);
    refuse_unless(setup_, named.status());
    rails = *std::move(named);
  }
  find_streams();
}

// Shares and slices are given for each rail, so with these a rail is not expanded to more streams
// than the user named. The other ranks are not known yet: unless a launcher says how many run on
// this host, all of them may.
void Joining::find_streams() {
  std::vector<std::string>& rails = setup_.options.rails;
  if (environment("NEZHA_RAIL_THREADS") != "0" && !AgreedSettings(setup_.options).has_slices()) {
    const int launched = launched_here(setup_.size());
    const int threads = rail_threads({setup_.cores.count, launched > 0 ? launched : setup_.size()});
    rails = choose_streams(rails, threads, wire_speed_of);
  }
  auto expanded = expand_streams(rails);
  refuse_unless(setup_, expanded.status());
  rails = *std::move(expanded);
}

// The switch only adds up; among themselves ranks communicate by links. If no rail for links is
// named, they use the switch rail's interface.
void Joining::take_switch_rail() {
  std::vector<std::string> links;
  for (const std::string& uri : setup_.options.rails) {
    if (!is_switch_rail(uri)) {
      links.push_back(uri);
      continue;
    }
    const auto rail = switch_rail(uri);
    refuse_unless(setup_, rail.status());
    if (setup_.switch_rail) {
      throw InvalidArgument(
          prefixed(setup_.rank_of,
                   absl::StrCat("rail '", uri, "': a context takes one flare rail at most")));
    }
    setup_.switch_rail = *rail;
    setup_.switch_rail->ports = PortRange::parse(setup_.options.ports).value_or(PortRange());
  }
  setup_.is_switch_alone = links.empty() && setup_.switch_rail;
  if (setup_.is_switch_alone) {
    const flare::FlareOptions& rail = *setup_.switch_rail;
    std::vector<std::string> options;
    if (!rail.rail.empty()) options.push_back("rail=" + rail.rail);
    if (!rail.address.empty()) options.push_back("address=" + rail.address);
    links.push_back(absl::StrCat("tcp:", rail.interface, options.empty() ? "" : "?",
                                 absl::StrJoin(options, "&")));
  }
  setup_.options.rails = std::move(links);
}

void Joining::open_devices() {
  auto rails = nezha::open_devices(*setup_.endpoint, setup_.options.rails, setup_.options.ports);
  refuse_unless(setup_, rails.status());  // the error names the rail
  setup_.rails = *std::move(rails);
}

void Joining::agree(const Record& rank0, AgreedSettings& settings) const {
  absl::Status status = settings.adopt(rank0.settings, setup_.rank());
  if (rank0.size != setup_.size()) {
    status = absl::FailedPreconditionError(absl::StrCat("the ranks' settings differ: the size is ",
                                                        setup_.size(), " at rank ", setup_.rank(),
                                                        " and ", rank0.size, " at rank 0"));
  }
  const std::string own_rail = flare_rail_of(setup_);
  if (rank0.flare_rail != own_rail) {
    const auto has = [](const std::string& rail) {
      return absl::StrCat(rail.empty() ? "no flare rail" : "a flare rail ", rail);
    };
    status = absl::FailedPreconditionError(
        absl::StrCat("the ranks' rails differ: rank 0 has ", has(rank0.flare_rail), " and rank ",
                     setup_.rank(), " has ", has(own_rail), "; name the same one on all ranks"));
  }
  if (!status.ok()) raise(setup_.rank_of, status);
}

// Slices are matched by the rail's place in the list. That is right if users name their rails, but
// rails that auto finds must be the same on all ranks.
void Joining::check_slices(const Record& rank0) const {
  const auto rails_of = [](const ChosenInterfaces& chosen) {
    return absl::StrJoin(chosen, ",",
                         [](std::string* out, const auto& entry) { *out += entry.first; });
  };
  std::string here = rails_of(setup_.chosen);
  std::string there = rails_of(rank0.interfaces);
  if (setup_.options.plan != Plan::kSlice || here == there) return;
  for (std::string* rails : {&here, &there}) {
    if (rails->empty()) *rails = "rails that are named";
  }
  throw IoError(prefixed(
      setup_.rank_of,
      absl::StrCat("slices need the same rails on every rank, but auto finds ", here, " at rank ",
                   setup_.rank(), " and ", there,
                   " at rank 0; name the same rails on all ranks, or choose the plan stripe")));
}

}  // namespace nezha
