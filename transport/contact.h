// SPDX-License-Identifier: Apache-2.0
// Who the two processes of a channel are, and what the peer has published about how to reach it.
#pragma once

#include <map>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/unique_id.h"

namespace nezha {

class Contact {
 public:
  using ByRail = std::map<std::string, std::string>;  // keyed by this end's names of the rails

  Contact(const UniqueId& process, const UniqueId& peer)
      : process_(process), peer_(peer), description_(absl::StrCat("process ", peer.str())) {}

  // Sets the peer's name, for messages. Returns whether it is the first: until then nothing but the
  // peer's process is known.
  bool describe(std::string description) {
    description_ = std::move(description);
    return !std::exchange(is_described_, true);
  }
  // Adds to what is known already.
  void add(const ByRail& addresses, const ByRail& peer_names) {
    for (const auto& [rail, address] : addresses) addresses_[rail] = address;
    for (const auto& [rail, name] : peer_names) peer_names_[rail] = name;
  }

  const UniqueId& process() const { return process_; }  // this one
  const UniqueId& peer() const { return peer_; }
  const std::string& description() const { return description_; }
  bool is_described() const { return is_described_; }
  bool has_addresses() const { return !addresses_.empty(); }
  // Returns where the peer's device on that rail is; null if it has none, as far as is known.
  const std::string* address(const std::string& rail) const {
    const auto found = addresses_.find(rail);
    return found == addresses_.end() ? nullptr : &found->second;
  }
  // Returns what the peer calls the rail.
  const std::string& peer_name(const std::string& rail) const {
    const auto found = peer_names_.find(rail);
    return found == peer_names_.end() ? rail : found->second;
  }

 private:
  UniqueId process_, peer_;
  std::string description_;
  bool is_described_ = false;
  ByRail addresses_, peer_names_;
};

}  // namespace nezha
