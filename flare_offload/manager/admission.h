// SPDX-License-Identifier: Apache-2.0
// Keeps track of what each switch of a fabric has room for. A switch's memory is cut into as many
// equal parts as it may have sessions. A session gets one part, which suffices for the worst order
// in which contributions can come (core/aggregation.h), so an admitted session never fails for want
// of memory (Flare, section 4: static partition over a predefined maximum of concurrent
// allreduces). The class has neither I/O nor a clock.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "flare_offload/manager/fabric.h"
#include "flare_offload/manager/tree.h"

namespace nezha::flare {

class Admission {
 public:
  // `sessions` is the most that each switch may have; positive. No switch can be used before
  // came_up().
  Admission(const Fabric& fabric, int sessions);

  // The switch answers: it has that memory, in bytes, and those sessions.
  void came_up(int number, uint64_t memory, const std::vector<uint32_t>& sessions);
  // The switch cannot be used for new sessions; `why` is for errors.
  void went_down(int number, std::string why);

  bool is_up(int number) const { return at(number).is_up; }
  bool has(int number, uint32_t session) const { return at(number).sessions.contains(session); }
  // Returns whether no switch has a session of that number.
  bool is_free(uint32_t session) const;
  // Returns why the switch has no room for that many more sessions, or nothing if it has.
  std::optional<std::string> why_not(int number, int streams) const;
  void take(int number, uint32_t first, int streams);
  void release(int number, uint32_t session);

  // Returns the largest window, a power of two up to the one asked for, with which a session fits a
  // part on every switch of the tree, or 0 if none does.
  uint32_t window(const Tree& tree, uint32_t asked, uint32_t payload, bool reproducible) const;

 private:
  struct Switch {
    std::string name;
    bool is_up = false;
    std::string why_down = "has not answered yet";
    uint64_t memory = 0;
    std::set<uint32_t> sessions = {};
  };

  const Switch& at(int number) const { return switches_[static_cast<size_t>(number)]; }
  Switch& at(int number) { return switches_[static_cast<size_t>(number)]; }

  const int sessions_;
  std::vector<Switch> switches_;
};

}  // namespace nezha::flare
