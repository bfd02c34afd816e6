// SPDX-License-Identifier: Apache-2.0
#include "control/experiment.h"

namespace nezha {
namespace {

// A candidate loses if its operations take this many times as long as by the home, and are
// predicted to do so by its best division.
constexpr double kHopeless = 1.25;
// A candidate wins if operations take less time by this part.
constexpr double kWorth = 0.03;
// While messages went another way, the candidate's rails may have saved up tokens or emptied their
// queues. That advantage is used up after this many bytes, so no candidate wins before.
constexpr double kSettleBytes = 4 << 20;
// Short messages take so long to carry these bytes that this many operations are enough. All
// readings of an experiment are reported within them (context/report_sample.h).
constexpr int kSettleOperations = 160;
constexpr int kMostDivisions = 4;

}  // namespace

bool Rests::is_due(const Key& key) const {
  const auto found = rests_.find(key);
  return found == rests_.end() || now_ >= found->second.until;
}

bool Rests::is_fresh(const Key& key) const { return !rests_.contains(key); }

void Rests::lost(const Key& key) {
  Rest& rest = rests_[key];
  rest.operations = std::clamp(2 * rest.operations, kShortest, kLongest);
  rest.until = now_ + rest.operations;
}

int Experiment::window_operations(SizeClass size_class) const {
  if (windows_ == 0) return kGlance;
  const auto bytes = static_cast<double>(typical_bytes(size_class));
  return std::clamp(static_cast<int>(kSettleBytes / bytes), kGlance, Timer::kOperations);
}

Experiment::Verdict Experiment::look_at(const Window& window, double home, double promised) {
  const auto took = static_cast<double>(slowest(window));
  const double best = promised > 0 ? std::min(took, promised) : took;
  const bool was_glance = windows_++ == 0;
  home_time_ = home;
  more_ += (window.operations + (was_glance ? kLag : 0)) * (took - home);
  if (best > kHopeless * home) return Verdict::kLost;
  if (was_glance) return Verdict::kOpen;
  bytes_ += static_cast<double>(window.bytes) * window.operations;
  took_ += took * window.operations;
  home_took_ += home * window.operations;
  if (took_ > home_took_) return Verdict::kLost;
  operations_ += window.operations;
  if (bytes_ < kSettleBytes && operations_ < kSettleOperations) return Verdict::kOpen;
  return took_ < (1 - kWorth) * home_took_ ? Verdict::kWon : Verdict::kLost;
}

bool Experiment::divide(const Allocation& allocation) {
  if (++divisions_ > kMostDivisions) return false;
  candidate_.allocation = allocation;
  operations_ = 0;
  bytes_ = took_ = home_took_ = 0;
  return true;
}

}  // namespace nezha
