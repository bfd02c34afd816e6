// SPDX-License-Identifier: Apache-2.0
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
// What counts is the progress of what was sent, and answers to it. A path that loses large frames
// lets the peer's questions pass, and questions of one's own: these say nothing of the frames that
// wait.
//
// A slow link is not a silent one: what is sent by it at once, a train of frames that a shaper lets
// pass as one, may take longer than silence is borne. What its confirmations have taken is granted
// on top.
class Pulse {
 public:
  enum class State { kWell, kSuspected, kDead };
  // The reason that a link stands still, as far as this end can know.
  enum class Trouble {
    kNone,
    kLargeFrames,  // they do not get through; small ones do
    kMachine,      // the peer's machine confirms nothing
    kProcess,      // the peer's machine confirms what is sent, and its process answers nothing
  };

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

  // A link that has delivered no more than that may have sent small frames alone.
  static constexpr uint64_t kLittleBytes = 1 << 10;
  // A link that stands still for so long is made anew, if the pair has no better one.
  static constexpr Nanos kRemade = kSecond;

  // The link is up; `still_since`: since when the one before stood still; 0: it did not.
  void begin(Nanos time, Nanos still_since = 0);
  // A question of the peer's own shows that its process runs, and is no answer.
  void heard(Nanos time, bool is_answer) {
    last_heard_ = time;
    if (!is_answer) return;
    asked_at_ = 0;
    has_answered_ = true;
  }
  // A ping was sent. Later ones, until something is heard, are no news.
  void asked(Nanos time) {
    if (asked_at_ == 0) asked_at_ = time;
  }

  // To be called every few tens of milliseconds while anything is expected. `waiting_since`: since
  // when segments that were sent make no progress; 0: there are none. `siblings_heard`: when
  // anything last came by another link to the peer.
  State look(const Link::Health& link, Nanos waiting_since, Nanos siblings_heard, Nanos time);

  bool is_asked() const { return asked_at_ != 0; }
  Nanos last_heard() const { return last_heard_; }
  bool is_suspected() const { return suspected_at_ != 0; }
  // For how long nothing was confirmed or answered beyond what that may take, as of the last look.
  Nanos silence() const { return silence_; }
  // As of the last look, and since when: those of the link before count, if it was made anew.
  Trouble trouble() const { return trouble_; }
  // Whether, as of the last look, frames that this end sent were not confirmed. Where they all are,
  // and large frames do not get through, those of the peer do not.
  bool is_owed() const { return owed_since_ != 0; }
  Nanos still_since() const { return still_since_; }

 private:
  void grant(Nanos confirmation_time, Nanos time);
  Trouble find_trouble(Nanos owed, Nanos mute, Nanos asked, Nanos time) const;

  Nanos begun_at_ = 0;
  Nanos was_still_since_ = 0;  // the link before; 0: there was none that stood still
  Nanos last_heard_ = 0;
  Nanos asked_at_ = 0;
  bool has_answered_ = false;  // anything by this link
  Nanos suspected_at_ = 0;
  Nanos vouched_at_ = 0;  // the peer was seen to answer by another link after that
  Nanos silence_ = 0;
  uint64_t moved_ = 0;      // Link::Health::moved, when last looked at
  Nanos moved_at_ = 0;      // when that was seen to have grown
  uint64_t delivered_ = 0;  // Link::Health::delivered, likewise
  Nanos owed_since_ = 0;    // the peer's machine has confirmed nothing since, though it should
  Trouble trouble_ = Trouble::kNone;
  Nanos still_since_ = 0;  // 0: no trouble
  Nanos granted_ = 0;
  Nanos granted_at_ = 0;
};

}  // namespace nezha
