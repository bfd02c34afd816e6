// SPDX-License-Identifier: Apache-2.0
#include "common/cpus.h"

#include <sched.h>

#include <array>
#include <cstring>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

namespace nezha {
namespace {

constexpr int kMaxCpus = 8192;  // Linux's own limit

// A set of cores in the kernel's format.
class Mask {
 public:
  Mask() = default;
  explicit Mask(const Cpus& cpus) {
    for (const int cpu : cpus) CPU_SET_S(static_cast<size_t>(cpu), kSize, bits());
  }
  Cpus cpus() const {
    Cpus cpus;
    for (int cpu = 0; cpu < kMaxCpus; ++cpu) {
      if (CPU_ISSET_S(static_cast<size_t>(cpu), kSize, bits())) cpus.insert(cpu);
    }
    return cpus;
  }
  cpu_set_t* bits() { return sets_.data(); }
  const cpu_set_t* bits() const { return sets_.data(); }

  static constexpr size_t kSize = kMaxCpus / 8;  // bytes

 private:
  std::array<cpu_set_t, kSize / sizeof(cpu_set_t)> sets_{};
};

Cpus cpus_of(pthread_t thread) {
  Mask mask;
  return pthread_getaffinity_np(thread, Mask::kSize, mask.bits()) == 0 ? mask.cpus() : Cpus();
}

// Binds the thread to those of the cores that it may use, and returns them. The kernel ignores the
// others, and refuses a set of which it can use none.
Cpus bind_as_far_as_possible(pthread_t thread, const Mask& mask) {
  const int error = pthread_setaffinity_np(thread, Mask::kSize, mask.bits());
  return error == 0 ? cpus_of(thread) : Cpus();
}

Mask all_cpus() {
  Mask mask;
  std::memset(mask.bits(), 0xff, Mask::kSize);
  return mask;
}

bool parse_number(absl::string_view text, int& number) {
  return !text.empty() && text.find_first_not_of("0123456789") == text.npos &&
         absl::SimpleAtoi(text, &number) && number < kMaxCpus;
}

}  // namespace

absl::StatusOr<Cpus> parse_cpus(absl::string_view text) {
  Cpus cpus;
  for (const absl::string_view part : absl::StrSplit(text, ',')) {
    const std::vector<absl::string_view> ends = absl::StrSplit(part, '-');
    int first = 0, last = 0;
    if (ends.size() > 2 || !parse_number(ends.front(), first) || !parse_number(ends.back(), last) ||
        first > last) {
      return absl::InvalidArgumentError(absl::StrCat(
          "'", text.substr(0, 80), "' is no list of cores such as 0-3,8, each below ", kMaxCpus));
    }
    for (int cpu = first; cpu <= last; ++cpu) cpus.insert(cpu);
  }
  return cpus;
}

std::string to_string(const Cpus& cpus) {
  std::vector<std::string> parts;
  for (auto cpu = cpus.begin(); cpu != cpus.end();) {
    const int first = *cpu;
    int last = first;
    for (++cpu; cpu != cpus.end() && *cpu == last + 1; ++cpu) ++last;
    parts.push_back(first == last ? absl::StrCat(first) : absl::StrCat(first, "-", last));
  }
  return absl::StrJoin(parts, ",");
}

Cpus allowed_cpus() { return cpus_of(pthread_self()); }

absl::Status bind_thread(pthread_t thread, const Cpus& cpus) {
  if (bind_as_far_as_possible(thread, Mask(cpus)) == cpus) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("the cores ", to_string(cpus), " are not all open to the process; it may use ",
                   to_string(bind_as_far_as_possible(thread, all_cpus()))));
}

}  // namespace nezha
