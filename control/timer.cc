// SPDX-License-Identifier: Apache-2.0
#include "control/timer.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "collectives/hosts/size_regimes.h"
#include "transport/wire.h"

namespace nezha {
namespace {

constexpr Nanos kBetween = 20 * kMicrosecond;  // from one operation to the next, back to back
constexpr double kMostLater = 4;               // times the minimum: the mean counts as no more
constexpr Nanos kFarIdler = 4;                 // times the limit for the average rank
constexpr Nanos kLongest = Nanos{1} << 60;     // years

double robust_mean(RecycledVector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t left_out = std::min((3 * values.size() + 9) / 10, (values.size() - 1) / 2);
  const auto first = values.begin() + static_cast<ptrdiff_t>(left_out);
  const auto last = values.end() - static_cast<ptrdiff_t>(left_out);
  return std::accumulate(first, last, 0.0) / static_cast<double>(last - first);
}

// Returns the standard error of robust_mean(). The standard deviation of normal values is 1.5 times
// their typical deviation; leaving out three of ten at either end raises the error by a sixth.
double robust_error(RecycledVector<double> values) {
  const double mean = robust_mean(values);
  for (double& value : values) value = std::fabs(value - mean);
  return 1.75 * robust_mean(values) / std::sqrt(values.size());
}

LaneTime lane_time(const RecycledVector<Reading>& operations, size_t lane, double mean_bytes) {
  RecycledVector<double> times;
  RecycledVector<double> scaled;  // as if all operations were of the mean size
  for (const Reading& operation : operations) {
    times.push_back(static_cast<double>(operation.lanes[lane]));
    scaled.push_back(times.back() * mean_bytes / static_cast<double>(operation.bytes));
  }
  // Take the values that agree better: either start-up or bytes may decide what operations take.
  const double error = robust_error(times);
  const double scaled_error = robust_error(scaled);
  const bool is_scaled = scaled_error < error;
  return {std::llround(robust_mean(is_scaled ? scaled : times)),
          std::llround(std::min(error, scaled_error))};
}

Window window_of(SizeClass size_class, const RecycledVector<Reading>& operations) {
  RecycledVector<double> bytes;
  bytes.reserve(operations.size());
  for (const Reading& operation : operations) {
    bytes.push_back(static_cast<double>(operation.bytes));
  }
  const double mean_bytes = robust_mean(bytes);
  Window window;
  window.size_class = size_class;
  window.bytes = static_cast<uint64_t>(std::llround(mean_bytes));
  window.allocation = operations.front().allocation;
  window.operations = static_cast<int>(operations.size());
  for (size_t lane = 0; lane < operations.front().lanes.size(); ++lane) {
    window.lanes.push_back(lane_time(operations, lane, mean_bytes));
  }
  return window;
}

Nanos longest(const LaneTimes& lanes) { return *std::max_element(lanes.begin(), lanes.end()); }

bool says_nothing(const Reading& reading) {
  return std::all_of(reading.lanes.begin(), reading.lanes.end(), [](Nanos t) { return t == 0; });
}

// Returns whether so many operations disagree about a lane that one more could change its median.
bool is_contested(const RecycledVector<Reading>& operations) {
  const size_t middle = operations.size() / 2;
  for (size_t lane = 0; lane < operations.front().lanes.size(); ++lane) {
    LaneTimes times;
    times.reserve(operations.size());
    for (const Reading& operation : operations) times.push_back(operation.lanes[lane]);
    std::nth_element(times.begin(), times.begin() + static_cast<ptrdiff_t>(middle), times.end());
    const Nanos median = times[middle];
    const auto others = std::count_if(times.begin(), times.end(), [median](Nanos time) {
      return time > median + median / 2 || median > time + time / 2;
    });
    if (others >= std::max<ptrdiff_t>(1, (std::ssize(times) - 1) / 2)) return true;
  }
  return false;
}

}  // namespace

Nanos slowest(const Window& window) {
  Nanos time = 0;
  for (const LaneTime& lane : window.lanes) time = std::max(time, lane.mean);
  return time;
}

LaneSet took_part(const Window& window) {
  LaneSet set = 0;
  for (size_t lane = 0; lane < window.lanes.size(); ++lane) {
    if (window.lanes[lane].mean > 0) set |= lane_bit(static_cast<int>(lane));
  }
  return set;
}

Timer::Timer(int ranks, int lanes) : ranks_(ranks), lanes_(static_cast<size_t>(lanes)) {}

void Timer::set_operations(SizeClass size_class, int operations) {
  length_[size_class] = operations;
}

absl::StatusOr<std::optional<Window>> Timer::add(int rank, const Reading& reading) {
  if (absl::Status valid = check(rank, reading); !valid.ok()) return valid;
  const auto operation = find_or_add(reading);
  operation->told[static_cast<size_t>(rank)] = true;
  join(*operation, reading);
  if (--operation->missing > 0) return std::nullopt;
  const Reading joined = this->joined(*operation);
  pending_.erase(operation);
  by_id_.erase(joined.operation);
  return gather(joined);
}

void Timer::join(Operation& operation, const Reading& reading) const {
  const bool follows = reading.idle < std::numeric_limits<Nanos>::max();
  operation.is_at_once &= follows && !says_nothing(reading);
  operation.idle += reading.idle / ranks_;
  operation.most_idle = std::max(operation.most_idle, reading.idle);
  operation.took += longest(reading.lanes) / ranks_;
  for (size_t lane = 0; lane < lanes_; ++lane) {
    Nanos& shortest = operation.shortest.lanes[lane];
    shortest = std::min(shortest, reading.lanes[lane]);
    operation.means[lane] += reading.lanes[lane] / ranks_;
  }
}

// Returns the result for an operation of which all ranks' readings have come.
Reading Timer::joined(Operation& operation) const {
  Reading joined = std::move(operation.shortest);
  const Nanos took = operation.took;
  const Nanos at_once = std::max(took / 8, std::min(took / 3, kBetween));
  const bool follow = operation.idle <= at_once && operation.most_idle / kFarIdler <= at_once;
  if (!operation.is_at_once || !follow) return joined;
  const Nanos slowest = std::max<Nanos>(1, longest(joined.lanes));
  const double more =
      std::clamp(static_cast<double>(took) / static_cast<double>(slowest), 1.0, kMostLater);
  for (size_t lane = 0; lane < lanes_; ++lane) {
    Nanos& time = joined.lanes[lane];
    const bool is_short = joined.bytes < SizeRegimes::kLaneMeans;
    const auto scaled = std::llround(more * static_cast<double>(time));
    time = std::max(time, is_short ? operation.means[lane] : Nanos{scaled});
  }
  return joined;
}

absl::Status Timer::check(int rank, const Reading& reading) const {
  const auto wrong = [&](absl::string_view what) {
    return absl::InvalidArgumentError(absl::StrCat("rank ", rank, "'s reading of operation ",
                                                   reading.operation.ordinal, " of tag ",
                                                   reading.operation.tag, " ", what));
  };
  if (rank < 0 || rank >= ranks_) return wrong("is of no rank of this context");
  if (reading.lanes.size() != lanes_) {
    return wrong(absl::StrCat("has ", reading.lanes.size(), " lanes, not ", lanes_));
  }
  const auto is_negative = [](Nanos time) { return time < 0; };
  if (std::any_of(reading.lanes.begin(), reading.lanes.end(), is_negative) ||
      is_negative(reading.idle)) {
    return wrong("has a negative duration");
  }
  const auto is_too_long = [](Nanos time) { return time > kLongest; };
  if (std::any_of(reading.lanes.begin(), reading.lanes.end(), is_too_long)) {
    return wrong("has a duration of years");
  }
  if (reading.bytes > wire::kMaxMessage) return wrong("is of more bytes than an operation has");
  const auto found = by_id_.find(reading.operation);
  if (found == by_id_.end()) return absl::OkStatus();
  const Operation& operation = *found->second;
  if (operation.told[static_cast<size_t>(rank)]) return wrong("came twice");
  const Reading& other = operation.shortest;
  if (reading.bytes != other.bytes || reading.allocation != other.allocation) {
    return wrong(absl::StrCat("says ", reading.bytes, " bytes by allocation ", reading.allocation,
                              ", another rank's ", other.bytes, " by ", other.allocation));
  }
  if (says_nothing(reading) || says_nothing(other)) return absl::OkStatus();
  for (size_t lane = 0; lane < lanes_; ++lane) {
    if ((reading.lanes[lane] == 0) != (other.lanes[lane] == 0)) {
      return wrong(
          absl::StrCat("differs from another rank's in whether lane ", lane, " took part"));
    }
  }
  return absl::OkStatus();
}

Timer::Pending::iterator Timer::find_or_add(const Reading& reading) {
  const auto [found, is_new] = by_id_.try_emplace(reading.operation);
  if (!is_new) return found->second;
  pending_.push_back({.shortest = reading,
                      .means = LaneTimes(lanes_),
                      .told = RecycledVector<bool>(static_cast<size_t>(ranks_)),
                      .missing = ranks_});
  found->second = std::prev(pending_.end());
  if (pending_.size() > kPending) {
    by_id_.erase(pending_.front().shortest.operation);
    pending_.pop_front();
    ++forgotten_;
  }
  return std::prev(pending_.end());
}

std::optional<Window> Timer::gather(const Reading& reading) {
  if (reading.allocation == 0 || reading.bytes == 0) return std::nullopt;
  const SizeClass size_class = size_class_of(reading.bytes);
  Gathering& gathering = gathering_[size_class];
  if (reading.allocation < gathering.allocation) return std::nullopt;
  if (reading.allocation > gathering.allocation) gathering = {reading.allocation, {}};
  if (says_nothing(reading)) {
    gathering.silent = (gathering.silent + 1) % kSilent;
    if (gathering.silent != 0) return std::nullopt;
    return Window{size_class, reading.bytes, reading.allocation, std::vector<LaneTime>(lanes_), 0};
  }
  gathering.silent = 0;
  gathering.operations.push_back(reading);
  const auto length = length_.find(size_class);
  const int wanted = length == length_.end() ? kOperations : length->second;
  const auto gathered = std::ssize(gathering.operations);
  if (gathered < wanted) return std::nullopt;
  if (gathered < kOperations && is_contested(gathering.operations)) return std::nullopt;
  Window window = window_of(size_class, gathering.operations);
  gathering.operations.clear();
  return window;
}

}  // namespace nezha
