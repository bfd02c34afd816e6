// SPDX-License-Identifier: Apache-2.0
#include "context/report_sample.h"

#include <algorithm>

#include "collectives/hosts/size_regimes.h"

namespace nezha {
namespace {

constexpr uint64_t kRun = 16;  // operations; runs of this length are sampled
constexpr int kOfRuns = 3;     // one run in 2^kOfRuns is reported
// The operations after a change, from the first that may end a search's window to the last of the
// first long window.
constexpr int kFirstAwaited = 3;
constexpr int kLastAwaited = Timer::kOperations;

// Picks runs pseudo-randomly, by the golden ratio. With regular gaps a program that repeats a
// pattern of operations might never have a class sampled.
bool is_in_sample(uint64_t ordinal) {
  return (ordinal / kRun * 0x9e37'79b9'7f4a'7c15) >> (64 - kOfRuns) == 0;
}

}  // namespace

void ReportSample::on_change(SizeClass size_class, uint32_t number, bool is_known) {
  Class& known = classes_[size_class];
  known = {number, is_known ? kAllAtFirst : 0, known.count <= kAllAtFirst};
}

bool ReportSample::takes(const Reading& reading) {
  Class& known = classes_[size_class_of(reading.bytes)];
  const bool is_current = reading.allocation == known.number;
  if (is_current) known.count = std::min(known.count + 1, kAllAtFirst + 1);
  // Another rank may already have reported an operation that began before the change.
  const bool takes_all = is_current ? known.count <= kAllAtFirst : known.took_all;
  return reading.bytes >= SizeRegimes::kAlwaysTold || takes_all ||
         is_in_sample(reading.operation.ordinal);
}

bool ReportSample::is_awaited(SizeClass size_class) const {
  const auto known = classes_.find(size_class);
  if (known == classes_.end()) return false;
  return kFirstAwaited <= known->second.count && known->second.count <= kLastAwaited;
}

}  // namespace nezha
