// Whether a link is alive: what its peer's machine and its peer's process answer, and since when
// they have not.
#pragma once

#include <cstdint>

#include "common/clock.h"
#include "transport/link.h"

namespace nezha {

// Frames may vanish, and no error says so. Two things tell: what was sent is not confirmed by the
// peer's machine, whose kernel does so within 40 ms whatever its processes do; or the peer's
// process answers nothing by this link though it does by others. Neither is a proof, since a whole
// machine or process may stand still for a while. So a link is suspected first, and the peer asked
// by its other links. Only when it answers there, and a moment later still not here, is the link
// dead.
//
// A slow link is not a silent one: what is sent by it at once, a train of frames that a shaper lets
// pass as one, may take longer than silence is borne. What its confirmations have taken is granted
// on top.
class Pulse {
 public:
  enum class State { kWell, kSuspected, kDead };

  static constexpr Nanos kMachineSuspected = 50 * kMillisecond;
  static constexpr Nanos kMachineDead = 90 * kMillisecond;
  static constexpr Nanos kMachineMoment = 5 * kMillisecond;
  // Longer than a peer's thread waits for a core.
  static constexpr Nanos kProcessSuspected = 75 * kMillisecond;
  static constexpr Nanos kProcessDead = 150 * kMillisecond;
  static constexpr Nanos kProcessMoment = 75 * kMillisecond;  // it has much to read first
  // What confirmations may take before that many bytes have shown it, and at most.
  static constexpr uint64_t kUnknownBytes = 256 << 10;
  static constexpr Nanos kUnknown = 100 * kMillisecond;
  static constexpr Nanos kMostGranted = 200 * kMillisecond;

  void begin(Nanos time);  // the link is up
  void heard(Nanos time) {
    last_heard_ = time;
    asked_at_ = 0;
  }
  // A ping was sent. Later ones, until something is heard, are no news.
  void asked(Nanos time) {
    if (asked_at_ == 0) asked_at_ = time;
  }

  // To be called every few tens of milliseconds while anything is expected. `waiting_since`: since
  // when segments that were sent make no progress; 0: there are none. `siblings_heard`: when
  // anything last came by another link to the peer.
  State look(const Link& link, Nanos waiting_since, Nanos siblings_heard, Nanos time);

  bool is_asked() const { return asked_at_ != 0; }
  Nanos last_heard() const { return last_heard_; }
  bool is_suspected() const { return suspected_at_ != 0; }
  // For how long nothing was confirmed or answered beyond what that may take, as of the last look.
  Nanos silence() const { return silence_; }

 private:
  void grant(const Link& link, Nanos time);

  Nanos last_heard_ = 0;
  Nanos asked_at_ = 0;
  Nanos suspected_at_ = 0;
  Nanos vouched_at_ = 0;  // the peer was seen to answer by another link after that
  Nanos silence_ = 0;
  uint64_t moved_ = 0;  // Link::moved, when last looked at
  Nanos moved_at_ = 0;  // when that was seen to have grown
  Nanos owed_since_ = 0;
  Nanos granted_ = 0;
  Nanos granted_at_ = 0;
};

}  // namespace nezha
