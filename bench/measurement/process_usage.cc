// SPDX-License-Identifier: Apache-2.0
#include "bench/measurement/process_usage.h"

#include <ctime>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <system_error>

#include "absl/strings/match.h"

namespace nezha::bench {
namespace {

namespace fs = std::filesystem;

void read_status(ProcessUsage& usage) {
  const std::map<std::string, int64_t*> wanted = {{"RssAnon:", &usage.anonymous_kib},
                                                  {"VmRSS:", &usage.resident_kib},
                                                  {"VmHWM:", &usage.peak_kib},
                                                  {"Threads:", &usage.threads}};
  std::ifstream status("/proc/self/status");
  std::string rest;
  for (std::string key; status >> key; std::getline(status, rest)) {
    const auto entry = wanted.find(key);
    if (entry != wanted.end()) status >> *entry->second;
  }
}

void count_descriptors(ProcessUsage& usage) {
  std::error_code error;
  for (const auto& entry : fs::directory_iterator("/proc/self/fd", error)) {
    const fs::path target = fs::read_symlink(entry.path(), error);
    if (error) continue;  // the descriptor that reads the folder itself
    ++usage.descriptors;
    if (absl::StartsWith(target.native(), "socket:")) ++usage.sockets;
  }
}

}  // namespace

ProcessUsage process_usage() {
  ProcessUsage usage;
  read_status(usage);
  count_descriptors(usage);
  return usage;
}

double process_cpu_seconds() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

}  // namespace nezha::bench
