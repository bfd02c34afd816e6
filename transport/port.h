// SPDX-License-Identifier: Apache-2.0
// A port: this process's end of one rail to one peer, whether or not a link is up on it. It makes
// connections, keeps the link and judges it, and remembers what became of earlier links.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "common/clock.h"
#include "common/unique_id.h"
#include "transport/contact.h"
#include "transport/device.h"
#include "transport/link.h"
#include "transport/loss.h"
#include "transport/outage.h"
#include "transport/pulse.h"
#include "transport/refusals.h"
#include "transport/retry.h"

namespace nezha {

// A port decides nothing that depends on other rails, and nothing about the messages on the link:
// the channel does. All calls are made under Progress's lock.
class Port {
 public:
  Port(Device& device, const Contact& contact) : device_(device), contact_(contact) {}

  Device& device() const { return device_; }
  Rail rail() const { return device_.rail(); }
  Link* link() const { return link_.get(); }  // null: none is up

  // ---- Connections

  // Returns whether this process can connect to the peer by this rail.
  bool is_usable() const;
  // Notes that a link is wanted, and returns whether to connect now; `is_last_resort`: the pair has
  // no link that is known to be well.
  bool is_due(Nanos time, bool is_last_resort);
  // Connects for a context that both are in, if is_usable(). `done` must call attempt_ended().
  void connect(const UniqueId& job, Device::Connected done);
  void attempt_ended(const absl::Status& why);
  void give_up_attempt() { attempt_.reset(); }
  bool is_connecting() const { return attempt_ != nullptr; }
  // These return when the latest attempt began, the id of its link, and its context.
  Nanos attempt_at() const { return attempt_at_; }
  uint64_t attempt_id() const { return attempt_id_; }
  const UniqueId& attempt_job() const { return attempt_job_; }
  // Returns the generation of the latest link or attempt.
  uint32_t generation() const { return generation_; }
  // Returns the answer to a peer that connects.
  wire::WelcomeCode answer(const wire::Hello& hello) const;
  void carrier_returned() { retry_.carrier_returned(); }

  // ---- The life of a link

  // There was no link, and now this one is up.
  void link_up(std::unique_ptr<Link> link, LinkOwner* owner, uint64_t id, uint32_t generation);
  // Logs that there is a link.
  void tell_up();
  // The link is of no use any more.
  void link_failed(const absl::Status& why);
  // Returns what the peer is to hear of the link, which is about to end. Logs it if large frames
  // are lost. `is_missed`: a missing link is a fault.
  wire::LinkDown last_words(bool is_missed);
  // Fences the link: from here on it neither reads nor writes.
  void link_down(const absl::Status& why);
  // Counts and logs the failure that ended the link.
  void tell_down(const absl::Status& why, bool is_missed);
  // The peer has given up a link, which may be another port's. Returns the error to give up this
  // port's link with; OK if the link is another one, or is gone. `by`: the link by which the peer
  // said so.
  absl::Status peer_gave_up(const wire::LinkDown& down, const Link& by, bool is_missed);
  // Ends the link and all attempts: at once, or after what was sent before.
  void stop() noexcept;
  void shut_down();
  // Destroys the link, for a channel that is about to be destroyed.
  void fence() { link_.reset(); }
  // Acknowledgements are due: flush_ack() sends them.
  void set_ack_due() { is_ack_due_ = true; }
  void flush_ack();

  // ---- How the link is: while there is one

  // A frame has come.
  void heard(wire::FrameType type);
  // Asks the peer whether it is there. Returns false if no link is up, or a question is open.
  bool ask();
  // Sends a ping, unless the peer has been silent for so long that pings would only pile up.
  void ping();
  // Sends a burst, which shows the rate of the rail and is a question to the peer; see RateTrial.
  void send_burst(int frames, Nanos time);
  // See Pulse.
  Pulse::State look(Nanos waiting_since, Nanos siblings_heard, Nanos time);
  // Returns whether the link has become lossy, or is no longer lossy. The log tells.
  bool judge_losses(Nanos time);
  bool is_lossy() const { return link_ != nullptr && loss_.is_lossy(); }
  bool is_suspected() const { return pulse_.is_suspected(); }
  bool is_asked() const { return pulse_.is_asked(); }
  Nanos last_heard() const { return pulse_.last_heard(); }
  Pulse::Trouble trouble() const { return pulse_.trouble(); }
  // Returns whether to replace a link that stands still: a new one may show what this one cannot.
  bool is_to_be_remade(Nanos time) const;
  // These return the errors to give up a link with: one that has died, and one that was made anew.
  absl::Status silence_error() const;
  absl::Status remade_error() const;
  // Returns how far the link is trusted; see Retry.
  double trust(Nanos time) const { return retry_.trust(time); }
  // A segment of so many bytes was acknowledged (kTo) or has landed (kFrom).
  void passed(uint32_t bytes, Outage::Way way);

  // ---- What is known of the rail

  std::string state() const;
  const Refusals& refusals() const { return refusals_; }
  bool is_long_missing(Nanos time) const { return outage_.is_long(time); }
  // Returns since when a link has been missing that was there before or has not come for long; 0 if
  // none is.
  Nanos missing_since(Nanos time) const;
  // Logs that there has been no link for long, if that is due.
  void tell_of_outage(Nanos time);

 private:
  void begin_health(Nanos time);
  std::string trouble_text(bool with_time) const;
  uint32_t lost_packet() const;
  void note_large_frames(uint32_t lost_packet, Outage::Way way, bool is_missed);
  void note_failure(const absl::Status& why);

  Device& device_;
  const Contact& contact_;
  std::unique_ptr<Link> link_;
  std::unique_ptr<Device::Attempt> attempt_;
  Nanos attempt_at_ = 0;
  uint64_t attempt_id_ = 0;
  UniqueId attempt_job_;
  uint32_t generation_ = 0;  // the latest link's or attempt's
  uint32_t link_generation_ = 0;
  uint64_t last_link_ = 0;  // the id of the link that died last; 0: none has
  Retry retry_;
  Pulse pulse_;
  Loss loss_;
  Nanos up_at_ = 0;
  Nanos judged_at_ = 0;  // when its losses were last judged
  bool has_been_up_ = false;
  Refusals refusals_;
  Outage outage_;
  Nanos still_since_ = 0;  // since when the link before stood still; 0: it did not
  bool is_ack_due_ = false;
  absl::Status last_error_;
};

}  // namespace nezha
