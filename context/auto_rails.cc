// SPDX-License-Identifier: Apache-2.0
#include "context/auto_rails.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "control/allocation.h"
#include "nezha/errors.h"
#include "nezha/interfaces.h"
#include "rails/nic_probe.h"

namespace nezha {
namespace {

// As many as the load balancer can handle beside stripes. Users may name more.
constexpr size_t kMostRails = kMaxLanes - 1;

}  // namespace

absl::StatusOr<std::vector<Choice>> probe_and_select(const std::vector<std::string>& unwanted) {
  const auto interfaces = probe_interfaces();
  if (!interfaces.ok()) return interfaces.status();
  return select_nics(*interfaces, near_numa_nodes(), kMostRails, unwanted);
}

std::string uri_of(const Choice& choice) {
  if (choice.rail.empty()) return "";
  const std::string& name = choice.interface.name;
  return choice.rail == name ? absl::StrCat("tcp:", name)
                             : absl::StrCat("tcp:", name, "?rail=", choice.rail);
}

bool is_auto(const std::vector<std::string>& rails) {
  return std::find(rails.begin(), rails.end(), "auto") != rails.end();
}

absl::StatusOr<AutoRails> find_rails(const std::vector<std::string>& rails, spdlog::logger& log) {
  std::vector<std::string> unwanted;
  for (const std::string& word : rails) {
    if (word == "auto") continue;
    if (word.size() < 2 || word.front() != '!') {
      return absl::InvalidArgumentError(
          absl::StrCat("rails: '", word,
                       "' cannot stand beside auto; name auto alone, or with interfaces to leave "
                       "out, such as auto,!eth0,!ib*"));
    }
    unwanted.push_back(word.substr(1));
  }
  const auto choices = probe_and_select(unwanted);
  if (!choices.ok()) return choices.status();
  AutoRails found;
  std::vector<std::string> left;
  for (const Choice& choice : *choices) {
    const std::string& name = choice.interface.name;
    if (choice.rail.empty()) {
      left.push_back(absl::StrCat(name, ": ", choice.why));
      log.info("rails = auto: {} is left out: {}", name, choice.why);
      continue;
    }
    found.uris.push_back(uri_of(choice));
    found.interfaces[choice.rail] = name;
    log.info("rails = auto: {} is rail {}: {}", name, choice.rail, choice.why);
  }
  if (!found.uris.empty()) return found;
  return absl::NotFoundError(absl::StrCat(
      "rails = auto finds no interface to use (", absl::StrJoin(left, "; "),
      "); name the rails, such as tcp:eth0, or tcp:lo for ranks that are all on one host"));
}

std::vector<NetworkInterface> networkInterfaces() {
  const auto choices = probe_and_select();
  if (!choices.ok()) throw IoError("nezha: " + std::string(choices.status().message()));
  std::vector<NetworkInterface> all;
  for (const Choice& choice : *choices) {
    const Interface& from = choice.interface;
    NetworkInterface& to = all.emplace_back();
    to.name = from.name;
    to.kind = from.kind;
    for (const InterfaceAddress& address : from.addresses) to.addresses.push_back(address.str());
    to.mtu = from.mtu;
    to.speed = from.speed;
    to.pci = from.pci;
    to.numa_node = from.numa_node;
    to.uri = uri_of(choice);
    to.reason = choice.why;
  }
  return all;
}

}  // namespace nezha
