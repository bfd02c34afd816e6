// SPDX-License-Identifier: Apache-2.0
#include "common/cores.h"

#include <sys/stat.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <iterator>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "common/cpus.h"
#include "common/host.h"

namespace nezha {
namespace {

// Returns "" if the file cannot be read.
std::string read_file(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

bool lists(absl::string_view list, absl::string_view word) {
  const std::vector<absl::string_view> words = absl::StrSplit(list, ',');
  return std::find(words.begin(), words.end(), word) != words.end();
}

// One of the kernel's trees of cgroups that may limit CPU time.
struct Hierarchy {
  bool is_v2 = false;
  std::string cgroup;  // this process's cgroup in the tree
};

// A line is NUMBER:CONTROLLERS:CGROUP. Version 2 names no controllers.
std::vector<Hierarchy> hierarchies(const std::string& text) {
  std::vector<Hierarchy> found;
  for (const absl::string_view line : absl::StrSplit(text, '\n', absl::SkipEmpty())) {
    const std::vector<absl::string_view> parts = absl::StrSplit(line, absl::MaxSplits(':', 2));
    if (parts.size() != 3) continue;
    const bool is_v2 = parts[0] == "0" && parts[1].empty();
    if (is_v2 || lists(parts[1], "cpu")) found.push_back({is_v2, std::string(parts[2])});
  }
  return found;
}

// The place where a tree of cgroups is mounted. It shows the tree from one of its cgroups on.
struct Mount {
  std::string root;  // that cgroup
  std::string folder;
};

// A line has six fields and more, then " - ", and then the file system's kind, source and options;
// the fourth and the fifth field are the root and the folder.
std::optional<Mount> find_mount(const std::string& mountinfo, bool is_v2) {
  for (const absl::string_view line : absl::StrSplit(mountinfo, '\n', absl::SkipEmpty())) {
    const std::vector<absl::string_view> halves = absl::StrSplit(line, absl::MaxSplits(" - ", 1));
    if (halves.size() != 2) continue;
    const std::vector<absl::string_view> place = absl::StrSplit(halves[0], ' ');
    const std::vector<absl::string_view> system = absl::StrSplit(halves[1], ' ');
    if (place.size() < 6 || system.size() < 3) continue;
    const bool is_it =
        is_v2 ? system[0] == "cgroup2" : system[0] == "cgroup" && lists(system[2], "cpu");
    if (is_it) return Mount{std::string(place[3]), std::string(place[4])};
  }
  return std::nullopt;
}

std::optional<double> ratio(absl::string_view quota, absl::string_view period) {
  double part = 0, whole = 0;
  if (!absl::SimpleAtod(quota, &part) || !absl::SimpleAtod(period, &whole)) return std::nullopt;
  if (part <= 0 || whole <= 0) return std::nullopt;
  return part / whole;
}

// Returns the limit that the cgroup itself has.
std::optional<double> limit_of(const std::string& folder, bool is_v2) {
  if (!is_v2) {
    return ratio(read_file(folder + "/cpu.cfs_quota_us"), read_file(folder + "/cpu.cfs_period_us"));
  }
  const std::string text = read_file(folder + "/cpu.max");
  const std::vector<absl::string_view> parts =
      absl::StrSplit(absl::StripAsciiWhitespace(text), ' ');
  return parts.size() == 2 ? ratio(parts[0], parts[1]) : std::nullopt;
}

// Returns the folder of the process's cgroup, relative to the mount's: "", or "/a/b". A container
// may see a mount that does not contain its cgroup; then the mount's own folder has the limits that
// are visible.
std::string below(const Mount& mount, absl::string_view cgroup) {
  if (mount.root != "/" && !absl::ConsumePrefix(&cgroup, mount.root)) return "";
  const bool is_below = absl::StartsWith(cgroup, "/") && !absl::StartsWith(cgroup, "/..");
  return is_below && cgroup != "/" ? std::string(cgroup) : "";
}

std::string identity_of(const std::string& folder) {
  struct stat status {};
  if (stat(folder.c_str(), &status) != 0) return folder;
  return absl::StrCat(status.st_dev, ".", status.st_ino);
}

}  // namespace

std::optional<CpuQuota> cpu_quota(const std::string& proc) {
  const std::string mountinfo = read_file(proc + "/self/mountinfo");
  std::optional<CpuQuota> tightest;
  for (const Hierarchy& hierarchy : hierarchies(read_file(proc + "/self/cgroup"))) {
    const auto mount = find_mount(mountinfo, hierarchy.is_v2);
    if (!mount) continue;
    std::string cgroup = below(*mount, hierarchy.cgroup);
    for (;;) {
      std::string folder = mount->folder + cgroup;
      const auto limit = limit_of(folder, hierarchy.is_v2);
      if (limit && (!tightest || *limit < tightest->cores)) tightest = {*limit, std::move(folder)};
      if (cgroup.empty()) break;
      cgroup.resize(cgroup.rfind('/'));
    }
  }
  return tightest;
}

Cores usable_cores(const std::string& proc) {
  const Cpus allowed = allowed_cpus();
  const std::string boot = read_file(proc + "/sys/kernel/random/boot_id");
  const absl::string_view machine = absl::StripAsciiWhitespace(boot);
  Cores cores;
  cores.count = std::max<double>(1, static_cast<double>(allowed.size()));
  // Two sets of cores that begin at the same core and have the same size are practically always the
  // same set.
  cores.pool = absl::StrCat(machine.empty() ? host_name() : std::string(machine), ":",
                            allowed.empty() ? 0 : *allowed.begin(), "+", allowed.size());
  const auto quota = cpu_quota(proc);
  if (quota && quota->cores < cores.count) {
    cores.count = quota->cores;
    absl::StrAppend(&cores.pool, ":", identity_of(quota->cgroup));
  }
  return cores;
}

int rail_threads(const CoreShare& share) {
  const int own = static_cast<int>(std::floor(share.cores / std::max(1, share.ranks)));
  return own < 2 ? 0 : own;
}

}  // namespace nezha
