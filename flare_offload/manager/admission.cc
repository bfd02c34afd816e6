// SPDX-License-Identifier: Apache-2.0
#include "flare_offload/manager/admission.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "absl/strings/str_cat.h"
#include "flare_offload/core/slot_table.h"

namespace nezha::flare {

Admission::Admission(const Fabric& fabric, int sessions) : sessions_(sessions) {
  for (const FabricSwitch& known : fabric.switches) {
    switches_.push_back({.name = known.name});
  }
}

void Admission::came_up(int number, uint64_t memory, const std::vector<uint32_t>& sessions) {
  Switch& it = at(number);
  it.is_up = true;
  it.memory = memory;
  it.sessions = {sessions.begin(), sessions.end()};
}

void Admission::went_down(int number, std::string why) {
  at(number).is_up = false;
  at(number).why_down = std::move(why);
}

bool Admission::is_free(uint32_t session) const {
  return std::none_of(switches_.begin(), switches_.end(),
                      [&](const Switch& it) { return it.sessions.contains(session); });
}

std::optional<std::string> Admission::why_not(int number, int streams) const {
  const Switch& it = at(number);
  if (!it.is_up) return absl::StrCat(it.name, " ", it.why_down);
  const int used = static_cast<int>(it.sessions.size());
  if (used + streams <= sessions_) return std::nullopt;
  return absl::StrCat(it.name, " is full: ", used, " of its ", sessions_,
                      " sessions are taken, and ", streams, " are asked for");
}

void Admission::take(int number, uint32_t first, int streams) {
  for (int i = 0; i < streams; ++i) at(number).sessions.insert(first + static_cast<uint32_t>(i));
}

void Admission::release(int number, uint32_t session) { at(number).sessions.erase(session); }

uint32_t Admission::window(const Tree& tree, uint32_t asked, uint32_t payload,
                           bool reproducible) const {
  for (uint32_t window = std::bit_floor(std::min(asked, kMaxWindow)); window > 0; window /= 2) {
    const bool fits = std::all_of(tree.begin(), tree.end(), [&](const TreeNode& node) {
      const SlotTableOptions options{.window = window,
                                     .children = std::vector<RankRange>(node.children.size()),
                                     .payload = payload,
                                     .reproducible = reproducible};
      return SlotTable::memory_of(options) <=
             at(node.number).memory / static_cast<uint64_t>(sessions_);
    });
    if (fits) return window;
  }
  return 0;
}

}  // namespace nezha::flare
