// SPDX-License-Identifier: Apache-2.0
#include "bench/measurement/line_rate.h"

#include <fnmatch.h>

#include <algorithm>
#include <numeric>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "bench/measurement/shares.h"
#include "nezha/errors.h"
#include "nezha/interfaces.h"

namespace nezha::bench {
namespace {

// Returns eth0 for tcp:eth0?rail=blue, for flare:eth0@10.0.0.6:7000, and for eth0 itself, which
// other libraries take.
std::string interface_of(const std::string& rail) {
  const size_t colon = rail.find(':');
  const size_t begin = colon == std::string::npos ? 0 : colon + 1;
  return rail.substr(begin, rail.find_first_of("@?", begin) - begin);
}

bool is_named(const NetworkInterface& interface, const std::vector<std::string>& rails) {
  return std::any_of(rails.begin(), rails.end(),
                     [&](const auto& rail) { return interface_of(rail) == interface.name; });
}

// Returns whether auto takes the interface. An empty list of rails means auto; !PATTERN leaves some
// out.
bool is_found(const NetworkInterface& interface, const std::vector<std::string>& rails) {
  return has_auto(rails) && !interface.uri.empty() &&
         std::none_of(rails.begin(), rails.end(), [&](const std::string& rail) {
           return absl::StartsWith(rail, "!") &&
                  fnmatch(rail.c_str() + 1, interface.name.c_str(), 0) == 0;
         });
}

// Virtual devices of other kinds have no speed, or an arbitrary one.
bool has_speed(const NetworkInterface& interface) {
  const std::string& kind = interface.kind;
  const bool is_wire = kind.empty() || kind == "bond" || kind == "vlan" || kind == "team";
  return is_wire && interface.speed > 0;
}

}  // namespace

double line_rate(const Options& options) {
  const std::vector<double>& given = options.line_rates;
  if (!given.empty()) return std::accumulate(given.begin(), given.end(), 0.0);
  double megabits = 0;
  try {
    for (const NetworkInterface& interface : networkInterfaces()) {
      if (!is_named(interface, options.rails) && !is_found(interface, options.rails)) continue;
      if (!has_speed(interface)) return 0;
      megabits += interface.speed;
    }
  } catch (const IoError&) {
    return 0;  // the kernel does not answer
  }
  return megabits / 1000;
}

}  // namespace nezha::bench
