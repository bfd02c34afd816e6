// SPDX-License-Identifier: Apache-2.0
#include "check/diagnose_paths.h"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <map>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace nezha::check {
namespace {

// A direction is slow if its rate is this many times less than that of the rail's fastest one.
constexpr double kSlowWay = 3;
// The median round trip of a path is too long if it takes this many microseconds, and this many
// times as long as that of most paths.
constexpr double kLateAnswer = 100'000;
constexpr double kManyTimes = 20;
// A rail is slow if its fastest direction is this many times slower than that of the fastest rail.
constexpr double kSlowRail = 4;

struct Measured {
  Way way;
  int frame = Path::kUnknown;
  bool loses = false;
  double rate = Path::kUnknown;
};

// Returns both directions of each path, by rail.
std::map<std::string, std::vector<Measured>> measured_by_rail(const Evidence& evidence,
                                                              const Words& words) {
  std::map<std::string, std::vector<Measured>> rails;
  for (const Path& path : evidence.paths) {
    const Way there{path.from, path.to, path.rail, path.to_rail};
    const Way back{path.to, path.from, path.to_rail, path.rail};
    // A broken path is reported as such, and its rates say nothing about a path that works.
    const bool is_whole = path.error.empty();
    auto& ways = rails[words.rail(there)];
    ways.push_back(
        {there, path.frame_there, path.loses_there, is_whole ? path.gbps_there : Path::kUnknown});
    ways.push_back(
        {back, path.frame_back, path.loses_back, is_whole ? path.gbps_back : Path::kUnknown});
  }
  return rails;
}

std::vector<Group> groups(const std::vector<Way>& faulty, const std::vector<Measured>& measured) {
  std::vector<Way> all;
  all.reserve(measured.size());
  for (const Measured& each : measured) all.push_back(each.way);
  return group(faulty, all);
}

// Returns the measurement of the way, which is one of `measured`.
const Measured& find(const std::vector<Measured>& measured, const Way& way) {
  return *std::find_if(measured.begin(), measured.end(), [&](const Measured& each) {
    return each.way.from == way.from && each.way.to == way.to;
  });
}

// ---- Packets that do not get through -----------------------------------------------------------

int smaller_mtu(const Words& words, const Way& way) {
  return std::min(words.from(way).mtu, words.to(way).mtu);
}

std::string in_bytes(int frame) { return absl::StrCat(frame, " bytes"); }

// Returns the smallest packet size of the ways of the group that match.
template <typename Matches>
int least_frame(const Group& group, const std::vector<Measured>& measured, Matches matches) {
  int least = std::numeric_limits<int>::max();
  for (const Way& way : group.ways) {
    if (matches(way)) least = std::min(least, find(measured, way).frame);
  }
  return least;
}

std::string sizes(const Words& words, const Group& group, const std::vector<Measured>& measured) {
  if (group.kind == Group::Kind::kRank) {
    const auto to_it = [&](const Way& way) { return way.to == group.rank; };
    const auto from_it = [&](const Way& way) { return way.from == group.rank; };
    return absl::StrCat(in_bytes(least_frame(group, measured, to_it)), " on the way to ",
                        words.rank(group.rank), " and ",
                        in_bytes(least_frame(group, measured, from_it)), " on the way from it");
  }
  if (group.kind != Group::Kind::kPair) {
    return in_bytes(least_frame(group, measured, [](const Way&) { return true; }));
  }
  std::vector<std::string> parts;
  for (const Way& way : group.ways) {
    parts.push_back(absl::StrCat(in_bytes(find(measured, way).frame), " from ",
                                 words.rank(way.from), " to ", words.rank(way.to)));
  }
  return listed(parts);
}

void add_frames(const Words& words, const std::vector<Measured>& measured,
                std::vector<Finding>& findings) {
  std::vector<Way> faulty;
  for (const Measured& each : measured) {
    if (each.loses) faulty.push_back(each.way);
  }
  for (const Group& group : groups(faulty, measured)) {
    const Way& way = group.ways.front();
    const int mtu = smaller_mtu(words, way);
    const int headers = words.to(way).is_ipv4() ? 28 : 48;  // the headers of ping's packets
    findings.push_back(words.finding(
        "mtu", group,
        absl::StrCat("packets as large as the interfaces' MTU of ", mtu, " bytes are lost, though",
                     " small ones get through. The largest packet that got through was ",
                     sizes(words, group, measured), ". A switch or a host on the way has a smaller",
                     " MTU: give all of them the same MTU. `ping -M do -s ", mtu - headers, " -I ",
                     words.from(way).interface, " ", words.to(way).address, "` on ",
                     words.host(way.from), " tests it.")));
  }
}

// ---- Rates -------------------------------------------------------------------------------------

// Returns the rate of the fastest direction, or less than 0 if nothing was measured. One slow host
// of three makes most pairs slow, so that the fastest direction tells more of what a rail can do
// than the median.
double fastest(const std::vector<Measured>& measured) {
  double rate = Path::kUnknown;
  for (const Measured& each : measured) rate = std::max(rate, each.rate);
  return rate;
}

std::string in_words(double rate) { return absl::StrFormat("%.3g Gbit/s", rate); }

// Returns the median round trip of all paths, in microseconds; less than 0 if there is none.
double usual_round_trip(const Evidence& evidence) {
  std::vector<double> times;
  for (const Path& path : evidence.paths) {
    if (path.round_trip_us >= 0) times.push_back(path.round_trip_us);
  }
  if (times.empty()) return Path::kUnknown;
  const auto middle = times.begin() + static_cast<std::ptrdiff_t>((times.size() - 1) / 2);
  std::nth_element(times.begin(), middle, times.end());
  return *middle;
}

// A packet that is lost is sent again after 200 ms at the earliest, by Linux's rule.
void add_late_answers(const Evidence& evidence, const Words& words,
                      std::vector<Finding>& findings) {
  const double usual = usual_round_trip(evidence);
  for (const Path& path : evidence.paths) {
    const bool is_late =
        path.error.empty() && path.round_trip_us > std::max(kLateAnswer, kManyTimes * usual);
    if (!is_late) continue;
    const Group group{Group::Kind::kPair, 0, {{path.from, path.to, path.rail, path.to_rail}}};
    findings.push_back(words.finding(
        "late", group,
        absl::StrFormat("the median round trip takes %.0f ms, and that of most paths %.3g ms:"
                        " packets are lost, or held up for long. Look at the error counters"
                        " (`ip -s link`), the cables and the switch's ports. A job hardly uses"
                        " such a rail.",
                        path.round_trip_us / 1000, usual / 1000)));
  }
}

void add_slow_ways(const Words& words, const std::vector<Measured>& measured,
                   std::vector<Finding>& findings) {
  const double best = fastest(measured);
  std::vector<Way> slow;
  for (const Measured& each : measured) {
    if (each.rate >= 0 && each.rate * kSlowWay < best) slow.push_back(each.way);
  }
  for (const Group& group : groups(slow, measured)) {
    double least = best;
    for (const Way& way : group.ways) least = std::min(least, find(measured, way).rate);
    findings.push_back(words.finding(
        "slow", group,
        absl::StrCat("the rate is ", in_words(least), ", while the fastest way of this rail has ",
                     in_words(best), ". Look at the speed that the interfaces and the switch's",
                     " ports have agreed on (`ethtool ", words.from(group.ways.front()).interface,
                     "` on ", words.suspects(group), "), at their error counters (`ip -s link`),",
                     " and for other traffic.")));
  }
}

void add_slow_rails(const std::map<std::string, std::vector<Measured>>& rails,
                    std::vector<Finding>& findings) {
  std::string first;
  double best = 0;
  for (const auto& [rail, measured] : rails) {
    if (fastest(measured) <= best) continue;
    first = rail;
    best = fastest(measured);
  }
  for (const auto& [rail, measured] : rails) {
    const double rate = fastest(measured);
    if (rate < 0 || rate * kSlowRail >= best) continue;
    findings.push_back(
        {"slow-rail",
         rail,
         {},
         {},
         absl::StrCat("Rail ", rail, " carries ", in_words(rate), ", and rail ", first, " ",
                      in_words(best), ". If it ought to be faster, look at the speed of its",
                      " interfaces and switches. If it is meant to be so slow, nezha gives it a",
                      " small part of each message; leave it out if that is not worth it.")});
  }
}

void add_broken(const Evidence& evidence, const Words& words, std::vector<Finding>& findings) {
  for (const Path& path : evidence.paths) {
    if (path.error.empty()) continue;
    const Group group{Group::Kind::kPair, 0, {{path.from, path.to, path.rail, path.to_rail}}};
    if (words.from(group.ways.front()).kind != "tcp") {
      findings.push_back(words.finding(
          "broken", group,
          absl::StrCat("TCP connections work, but the rail's own connections do not: ", path.error,
                       ". If it is RDMA over Ethernet, see to it that RoCE's packets",
                       " get through, which are UDP to port 4791, or iWARP's connections.")));
      continue;
    }
    findings.push_back(words.finding(
        "broken", group,
        absl::StrCat("the rail worked at first and failed while it was measured: ", path.error,
                     ". Run nezha-check again; if the fault comes and goes, look at the cables and",
                     " the error counters (`ip -s link`).")));
  }
}

}  // namespace

std::vector<Finding> diagnose_paths(const Evidence& evidence) {
  const Words words(evidence);
  std::vector<Finding> findings;
  const auto rails = measured_by_rail(evidence, words);
  for (const auto& [rail, measured] : rails) add_frames(words, measured, findings);
  add_broken(evidence, words, findings);
  add_late_answers(evidence, words, findings);
  for (const auto& [rail, measured] : rails) add_slow_ways(words, measured, findings);
  add_slow_rails(rails, findings);
  return findings;
}

}  // namespace nezha::check
