// SPDX-License-Identifier: Apache-2.0
#include "flare_offload/manager/fabric.h"

#include <algorithm>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "flare_offload/manager/groups.h"

namespace nezha::flare {
namespace {

using Words = std::vector<absl::string_view>;

absl::Status wrong(absl::string_view what, absl::string_view why) {
  return absl::InvalidArgumentError(absl::StrCat("'", what, "' ", why));
}

absl::StatusOr<int> number_of(const Fabric& fabric, absl::string_view name) {
  for (size_t i = 0; i < fabric.switches.size(); ++i) {
    if (fabric.switches[i].name == name) return static_cast<int>(i);
  }
  return wrong(name, "is no switch of a line above");
}

absl::Status add_switch(Fabric& fabric, const Words& words) {
  if (number_of(fabric, words[1]).ok()) return wrong(words[1], "is there already");
  FabricSwitch added{.name = std::string(words[1])};
  for (const auto& [word, address] :
       {std::pair{words[2], &added.data}, {words[3], &added.control}}) {
    const absl::StatusOr<Address> parsed = Address::parse(word);
    if (!parsed.ok()) return parsed.status();
    *address = *parsed;
  }
  fabric.switches.push_back(std::move(added));
  return absl::OkStatus();
}

// An address has several forms as text; this is the one that counts.
absl::StatusOr<std::string> address_of_host(absl::string_view word) {
  const bool is_v6 = word.find(':') != absl::string_view::npos;
  const auto parsed =
      Address::parse(is_v6 ? absl::StrCat("[", word, "]:1") : absl::StrCat(word, ":1"));
  if (!parsed.ok()) return wrong(word, "is no address of a host");
  return parsed->host();
}

absl::Status add_host(Fabric& fabric, const Words& words) {
  const auto address = address_of_host(words[1]);
  if (!address.ok()) return address.status();
  const auto at = number_of(fabric, words[2]);
  if (!at.ok()) return at.status();
  auto host = std::find_if(fabric.hosts.begin(), fabric.hosts.end(),
                           [&](const FabricHost& known) { return known.address == *address; });
  if (host == fabric.hosts.end()) host = fabric.hosts.insert(host, {*address, {}});
  if (std::count(host->switches.begin(), host->switches.end(), *at) > 0) {
    return wrong(words[1], "is linked to it already");
  }
  host->switches.push_back(*at);
  return absl::OkStatus();
}

absl::Status add_link(Fabric& fabric, const Words& words) {
  const auto one = number_of(fabric, words[1]);
  if (!one.ok()) return one.status();
  const auto other = number_of(fabric, words[2]);
  if (!other.ok()) return other.status();
  if (*one == *other) return wrong(words[1], "is linked to itself");
  fabric.switches[static_cast<size_t>(*one)].neighbours.push_back(*other);
  fabric.switches[static_cast<size_t>(*other)].neighbours.push_back(*one);
  return absl::OkStatus();
}

absl::Status add_groups(Fabric& fabric, const Words& words) {
  constexpr uint32_t kMost = 1 << 16;
  if (fabric.groups) return wrong(words[0], "is there already");
  const absl::StatusOr<Address> first = Address::parse(words[1]);
  if (!first.ok()) return first.status();
  GroupRange groups{.first = *first};
  if (!absl::SimpleAtoi(words[2], &groups.count) || groups.count < 1 || groups.count > kMost) {
    return wrong(words[2], absl::StrCat("is no number from 1 to ", kMost));
  }
  const auto last = plus(*first, groups.count - 1);
  if (!first->is_multicast() || !last || !last->is_multicast()) {
    return wrong(words[1], "does not begin a range of that many multicast addresses");
  }
  fabric.groups = groups;
  return absl::OkStatus();
}

// A word that a line may begin with.
struct Keyword {
  absl::string_view name;
  size_t values;
  absl::Status (*add)(Fabric& fabric, const Words& words);
};

constexpr Keyword kKeywords[] = {{"switch", 3, add_switch},
                                 {"host", 2, add_host},
                                 {"link", 2, add_link},
                                 {"multicast", 2, add_groups}};

absl::Status add_line(Fabric& fabric, absl::string_view line) {
  line = line.substr(0, line.find('#'));
  const Words words = absl::StrSplit(line, absl::ByAnyChar(" \t\r"), absl::SkipEmpty());
  if (words.empty()) return absl::OkStatus();
  for (const Keyword& keyword : kKeywords) {
    if (keyword.name != words[0]) continue;
    if (words.size() == keyword.values + 1) return keyword.add(fabric, words);
    return wrong(words[0],
                 absl::StrCat("takes ", keyword.values, " values, not ", words.size() - 1));
  }
  return wrong(words[0], "is none of: switch, host, link, multicast");
}

// A switch sends from the address at which it is known, to addresses of its family only.
absl::Status check_groups(const Fabric& fabric) {
  for (const FabricSwitch& it : fabric.switches) {
    if (fabric.groups && fabric.groups->first.family() != it.data.family()) {
      return wrong(it.name, "is of another address family than the multicast addresses");
    }
  }
  return absl::OkStatus();
}

}  // namespace

const FabricHost* Fabric::host(const Address& address) const {
  const std::string wanted = address.host();
  const auto found = std::find_if(hosts.begin(), hosts.end(),
                                  [&](const FabricHost& host) { return host.address == wanted; });
  return found == hosts.end() ? nullptr : &*found;
}

absl::StatusOr<Fabric> parse_fabric(absl::string_view text) {
  Fabric fabric;
  size_t number = 0;
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    ++number;
    if (absl::Status status = add_line(fabric, line); !status.ok()) {
      return absl::InvalidArgumentError(absl::StrCat("line ", number, ": ", status.message()));
    }
  }
  if (fabric.switches.empty()) return absl::InvalidArgumentError("there is no line 'switch'");
  if (absl::Status status = check_groups(fabric); !status.ok()) return status;
  return fabric;
}

}  // namespace nezha::flare
