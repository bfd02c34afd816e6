#include "check/diagnose_paths.h"

#include <algorithm>
#include <map>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace nezha::check {
namespace {

// A direction whose rate is this many times less than the rail's median or the other direction's.
constexpr double kSlowWay = 3;
// A rail whose median rate is this many times less than the fastest rail's.
constexpr double kSlowRail = 4;

struct Measured {
  Way way;
  int frame = Path::kUnknown;
  double rate = Path::kUnknown;
  double rate_of_reverse = Path::kUnknown;
};

// Both directions of each path, by rail.
std::map<std::string, std::vector<Measured>> measured_by_rail(const Evidence& evidence,
                                                              const Words& words) {
  std::map<std::string, std::vector<Measured>> rails;
  for (const Path& path : evidence.paths) {
    const Way there{path.from, path.to, path.rail, path.to_rail};
    const Way back{path.to, path.from, path.to_rail, path.rail};
    auto& ways = rails[words.rail(there)];
    ways.push_back({there, path.frame_there, path.gbps_there, path.gbps_back});
    ways.push_back({back, path.frame_back, path.gbps_back, path.gbps_there});
  }
  return rails;
}

std::vector<Group> groups(const Words& words, const std::vector<Way>& faulty,
                          const std::vector<Measured>& measured) {
  std::vector<Way> all;
  for (const Measured& each : measured) all.push_back(each.way);
  return group(one_per_hosts(words, faulty), one_per_hosts(words, all));
}

// The measured direction that is the group's way.
const Measured& find(const std::vector<Measured>& measured, const Way& way) {
  return *std::find_if(measured.begin(), measured.end(), [&](const Measured& each) {
    return each.way.from == way.from && each.way.to == way.to;
  });
}

// ---- Packets that do not get through -----------------------------------------------------------

int expected_frame(const Words& words, const Way& way) {
  return std::min(words.from(way).mtu, words.to(way).mtu);
}

std::string largest(int frame) {
  return frame > 0 ? absl::StrCat(frame, " bytes") : "smaller than all that were tried";
}

std::string sizes(const Words& words, const Group& group, const std::vector<Measured>& measured) {
  std::vector<std::string> parts;
  for (const Way& way : group.ways) {
    parts.push_back(absl::StrCat(largest(find(measured, way).frame), " from ", words.rank(way.from),
                                 " to ", words.rank(way.to)));
  }
  return listed(parts);
}

void add_frames(const Words& words, const std::vector<Measured>& measured,
                std::vector<Finding>& findings) {
  std::vector<Way> faulty;
  for (const Measured& each : measured) {
    if (each.frame != Path::kUnknown && each.frame < expected_frame(words, each.way)) {
      faulty.push_back(each.way);
    }
  }
  for (const Group& group : groups(words, faulty, measured)) {
    const Way& way = group.ways.front();
    const int mtu = expected_frame(words, way);
    const int headers = words.to(way).address.find(':') == std::string::npos ? 28 : 48;
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

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

std::vector<double> rates_of(const std::vector<Measured>& measured) {
  std::vector<double> rates;
  for (const Measured& each : measured) {
    if (each.rate >= 0) rates.push_back(each.rate);
  }
  return rates;
}

std::string in_words(double rate) { return absl::StrFormat("%.3g Gbit/s", rate); }

void add_slow_ways(const Words& words, const std::vector<Measured>& measured,
                   std::vector<Finding>& findings) {
  const std::vector<double> rates = rates_of(measured);
  if (rates.empty()) return;
  const double usual = median(rates);
  std::vector<Way> slow;
  for (const Measured& each : measured) {
    if (each.rate < 0) continue;
    if (each.rate * kSlowWay < std::max(usual, each.rate_of_reverse)) slow.push_back(each.way);
  }
  for (const Group& group : groups(words, slow, measured)) {
    const Measured& first = find(measured, group.ways.front());
    const double other = std::max(usual, first.rate_of_reverse);
    findings.push_back(words.finding(
        "slow", group,
        absl::StrCat("the rate is ", in_words(first.rate), ", where ", in_words(other),
                     first.rate_of_reverse > usual ? " go in the other direction"
                                                   : " are usual on this rail",
                     ". Look at the speed that the interfaces and the switch's ports have agreed",
                     " on (`ethtool ", words.from(group.ways.front()).interface,
                     "`), at their error counters (`ip -s link`), and for other traffic.")));
  }
}

void add_slow_rails(const std::map<std::string, std::vector<Measured>>& rails,
                    std::vector<Finding>& findings) {
  std::map<std::string, double> usual;
  for (const auto& [rail, measured] : rails) {
    const std::vector<double> rates = rates_of(measured);
    if (!rates.empty()) usual[rail] = median(rates);
  }
  const auto fastest = std::max_element(
      usual.begin(), usual.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
  for (const auto& [rail, rate] : usual) {
    if (rate * kSlowRail >= fastest->second) continue;
    findings.push_back(
        {"slow-rail",
         rail,
         {},
         {},
         absl::StrCat(
             "Rail ", rail, " carries ", in_words(rate), ", and rail ", fastest->first, " ",
             in_words(fastest->second), ". If it ought to be faster, look at the speed of",
             " its interfaces and switches. If it is meant to be so slow, nezha gives it a",
             " small part of each message; leave it out if that is not worth it.")});
  }
}

void add_broken(const Evidence& evidence, const Words& words, std::vector<Finding>& findings) {
  for (const Path& path : evidence.paths) {
    if (path.error.empty()) continue;
    const Group group{Group::Kind::kPair, 0, {{path.from, path.to, path.rail, path.to_rail}}};
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
  for (const auto& [rail, measured] : rails) add_slow_ways(words, measured, findings);
  add_slow_rails(rails, findings);
  return findings;
}

}  // namespace nezha::check
