// SPDX-License-Identifier: Apache-2.0
#include "transport/retry.h"

#include <algorithm>
#include <cmath>
#include <random>

namespace nezha {
namespace {

Nanos about(Nanos length) {
  thread_local std::minstd_rand random{std::random_device()()};
  return std::uniform_int_distribution<Nanos>(length * 3 / 4, length * 5 / 4)(random);
}

}  // namespace

void Retry::link_up(Nanos time) {
  wait_ = attempt_at_ = 0;
  up_since_ = time;
}

void Retry::link_died(Nanos time) {
  if (time - up_since_ >= std::max(kWell, 4 * rest_)) rest_ = 0;
  rest_ = rest_ == 0 ? kFirst : std::min(4 * rest_, kLongestRest);
  rest_until_ = time + about(rest_);
  wait_ = 0;
  attempt_failed(time);
}

void Retry::attempt_failed(Nanos time) {
  wait_ = wait_ == 0 ? kFirst : std::min(2 * wait_, kLongestWait);
  attempt_at_ = time + about(wait_);
}

bool Retry::due(Nanos time, bool is_last_resort) const {
  return attempt_at_ <= time && (is_last_resort || rest_until_ <= time);
}

double Retry::trust(Nanos time) const {
  if (rest_ == 0) return 1;
  const auto doublings = static_cast<double>(time - up_since_) / kTrustDoubles;
  return std::min(1.0, kFirstTrust * std::exp2(std::max(0.0, doublings)));
}

}  // namespace nezha
