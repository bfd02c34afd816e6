// SPDX-License-Identifier: Apache-2.0
// Decides whether a link is alive, by what the peer's machine and the peer's process answer, and
// since when they have not answered.
#pragma once

#include <cstdint>

#include "common/clock.h"
#include "transport/link.h"

namespace nezha {

// Frames may vanish without any error. Two things show that. Either the peer's machine does not
// confirm what was sent, though its kernel does so within 40 ms whatever its processes do; or the
// peer's process answers nothing by this link though it does by others. Neither is a proof, since a
// whole machine or process may stand still for a while. So the link is first suspected, and the
// peer is asked by its other links. Only if it answers there, and a moment later still not here, is
// the link dead.
//
// Only the progress of what was sent counts, and answers to it. Questions do not, whether the
// peer's or this end's: a path that loses large frames lets them pass, so they show nothing about
// the frames that wait.
//
// A slow link is not a silent one. A train of frames that is sent at once, and that a shaper lets
// pass as one, may take longer than the limits on silence. So the time that confirmations have
// taken is granted on top of the limits.
class Pulse {
 public:
  enum class State { kWell, kSuspected, kDead };
  // Why a link stands still, as far as this end can know.
  enum class Trouble {
    kNone,
    kLargeFrames,  // large frames do not get through; small ones do
    kMachine,      // the peer's machine confirms nothing
    kProcess,      // the peer's machine confirms what is sent, and its process answers nothing
  };

  static constexpr Nanos kMachineSuspected = 50 * kMillisecond;
  static constexpr Nanos kMachineDead = 90 * kMillisecond;
  static constexpr Nanos kMachineMoment = 5 * kMillisecond;
  // Longer than a peer's thread waits for a core.
  static constexpr Nanos kProcessSuspected = 75 * kMillisecond;
  static constexpr Nanos kProcessDead = 150 * kMillisecond;
  static constexpr Nanos kProcessMoment = 75 * kMillisecond;  // the process has much to read first
  // What is granted for confirmations before kUnknownBytes have shown how long they take, and the
  // most.
  static constexpr uint64_t kUnknownBytes = 256 << 10;
  static constexpr Nanos kUnknown = 100 * kMillisecond;
  static constexpr Nanos kMostGranted = 200 * kMillisecond;

  // A link that has delivered no more than this may have sent small frames alone.
  static constexpr uint64_t kLittleBytes = 1 << 10;
  // A link that stands still for so long is made anew if the pair has no better one.
  static constexpr Nanos kRemade = kSecond;

  // The link is up. `still_since`: since when the link before it stood still; 0: it did not.
  void begin(Nanos time, Nanos still_since = 0);
  // Something came from the peer. A question shows that its process runs, but is no answer.
  void heard(Nanos time, bool is_answer) {
    last_heard_ = time;
    if (!is_answer) return;
    asked_at_ = 0;
    has_answered_ = true;
  }
  // A ping was sent. Only the first one since the last answer counts.
  void asked(Nanos time) {
    if (asked_at_ == 0) asked_at_ = time;
  }

  // Callers call this every few tens of milliseconds while anything is expected. `waiting_since`:
  // since when segments that were sent have made no progress; 0: there are none. `siblings_heard`:
  // when anything last came by another link to the peer.
  State look(const Link::Health& link, Nanos waiting_since, Nanos siblings_heard, Nanos time);

  bool is_asked() const { return asked_at_ != 0; }
  Nanos last_heard() const { return last_heard_; }
  bool is_suspected() const { return suspected_at_ != 0; }
  // Returns for how long, as of the last look, nothing was confirmed or answered beyond what is
  // granted.
  Nanos silence() const { return silence_; }
  // These return the trouble as of the last look, and since when there is trouble. If the link was
  // made anew, the trouble of the one before counts.
  Trouble trouble() const { return trouble_; }
  // Returns whether, as of the last look, frames that this end sent were not confirmed. If all are
  // confirmed and large frames do not get through, the peer's frames are the ones that are lost.
  bool is_owed() const { return owed_since_ != 0; }
  Nanos still_since() const { return still_since_; }

 private:
  void grant(Nanos confirmation_time, Nanos time);
  Trouble find_trouble(Nanos owed, Nanos mute, Nanos asked, Nanos time) const;

  Nanos begun_at_ = 0;
  Nanos was_still_since_ = 0;  // the earlier link's; 0: there was none that stood still
  Nanos last_heard_ = 0;
  Nanos asked_at_ = 0;
  bool has_answered_ = false;  // the peer has answered something by this link
  Nanos suspected_at_ = 0;
  Nanos vouched_at_ = 0;  // when the peer was seen to answer by another link after that
  Nanos silence_ = 0;
  uint64_t moved_ = 0;      // Link::Health::moved, when last looked at
  Nanos moved_at_ = 0;      // when that was seen to have grown
  uint64_t delivered_ = 0;  // Link::Health::delivered, when last looked at
  Nanos owed_since_ = 0;    // the peer's machine has confirmed nothing since, though it should
  Trouble trouble_ = Trouble::kNone;
  Nanos still_since_ = 0;  // 0: no trouble
  Nanos granted_ = 0;
  Nanos granted_at_ = 0;
};

}  // namespace nezha
