// SPDX-License-Identifier: Apache-2.0
// Outage measures for how long there has been no link on a rail to a peer that is spoken to, and
// decides what of that the log tells at its default level.
#pragma once

#include <utility>

#include "common/clock.h"

namespace nezha {

class Outage {
 public:
  // A link that is only being made is there sooner. From then on an outage is told of, and plans
  // do without the rail.
  static constexpr Nanos kLong = 2 * kSecond;
  // The log tells of one outage in so much time, and of its end: a link may come and go for hours.
  static constexpr Nanos kQuiet = 10 * kSecond;

  // The link has died, or is wanted for the first time. Nothing if it is missing already.
  void begin(Nanos time) {
    if (since_ == 0) since_ = time;
  }
  // There is a link. Whether the log has told that there was none.
  bool end() {
    since_ = 0;
    return std::exchange(is_told_, false);
  }
  // Whether to tell of this outage now; the caller does so.
  bool tell(Nanos time) {
    if (is_told_ || (told_at_ != 0 && time - told_at_ < kQuiet)) return false;
    is_told_ = true;
    told_at_ = time;
    return true;
  }

  Nanos since() const { return since_; }  // 0: there is none
  bool is_long(Nanos time) const { return since_ != 0 && time - since_ >= kLong; }

 private:
  Nanos since_ = 0;
  Nanos told_at_ = 0;
  bool is_told_ = false;
};

}  // namespace nezha
