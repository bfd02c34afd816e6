// SPDX-License-Identifier: Apache-2.0
#include "bench/measurement/busy_cores.h"

#include <sched.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>

#include "absl/strings/match.h"
#include "bench/measurement/timing.h"

namespace nezha::bench {
namespace {

// Returns whether it is a line of /proc/stat about one of these CPUs, such as "cpu3 10 0 ...".
bool is_of(const std::string& line, const cpu_set_t& cpus) {
  if (!absl::StartsWith(line, "cpu") || line.size() < 4 || line[3] == ' ') return false;
  const size_t number = std::strtoul(line.c_str() + 3, nullptr, 10);
  return number < CPU_SETSIZE && CPU_ISSET(number, &cpus);
}

// Returns the ticks of work by one such line. Its numbers are, by proc(5): user, nice, system,
// idle, iowait, irq and softirq; those after them are not this machine's work.
double work_of(const std::string& line) {
  std::istringstream words(line);
  std::string name;
  double user = 0, nice = 0, system = 0, idle = 0, iowait = 0, irq = 0, softirq = 0;
  words >> name >> user >> nice >> system >> idle >> iowait >> irq >> softirq;
  return user + nice + system + irq + softirq;
}

// Returns the seconds of work of these CPUs since the machine started, or less than 0 if that is
// not known.
double work_seconds() {
  cpu_set_t cpus;
  if (sched_getaffinity(0, sizeof cpus, &cpus) != 0) return -1;
  std::ifstream stat("/proc/stat");
  double ticks = 0;
  for (std::string line; std::getline(stat, line);) {
    if (is_of(line, cpus)) ticks += work_of(line);
  }
  return ticks > 0 ? ticks / static_cast<double>(sysconf(_SC_CLK_TCK)) : -1;
}

}  // namespace

BusyCores::BusyCores() : start_(Clock::now()), before_(work_seconds()) {}

double BusyCores::mean() const {
  const double now = work_seconds();
  const double seconds = std::chrono::duration<double>(Clock::now() - start_).count();
  return before_ < 0 || now < before_ || seconds <= 0 ? -1 : (now - before_) / seconds;
}

}  // namespace nezha::bench
