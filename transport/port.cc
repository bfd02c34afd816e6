// SPDX-License-Identifier: Apache-2.0
#include "transport/port.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/log.h"
#include "transport/rate_trial.h"

namespace nezha {

namespace {

// Frames that a peer sends of its own accord, as it does on each new link, show that its process
// runs, but not that anything has reached it.
bool is_answer(wire::FrameType type) {
  switch (type) {
    case wire::FrameType::kPing:
    case wire::FrameType::kFiller:
    case wire::FrameType::kJoin:
    case wire::FrameType::kLeave:
    case wire::FrameType::kAbort:
      return false;
    default:
      return true;
  }
}

std::string large_frames(uint32_t packet) {
  return absl::StrCat("large frames (packets of up to ", packet, " bytes)");
}

std::string large_are_lost(uint32_t packet, absl::string_view since = "") {
  return absl::StrCat(large_frames(packet), " have not got through", since,
                      ", though small ones have; check the MTU of the path");
}

// Returns the size of the link's largest packets in bytes; 1 if the link cannot tell.
uint32_t largest_packet(const Link& link) {
  return std::max(1u, static_cast<uint32_t>(link.largest_packet()));
}

std::string word_for(Outage::Way way) { return way == Outage::Way::kTo ? "to" : "from"; }

}  // namespace

// ---- Connections -------------------------------------------------------------------------------

bool Port::is_usable() const {
  return device_.carrier() && contact_.address(device_.name()) != nullptr;
}

bool Port::is_due(Nanos time, bool is_last_resort) {
  if (is_connecting()) return false;
  if (contact_.address(device_.name()) != nullptr) outage_.begin(time);
  return retry_.due(time, is_last_resort);
}

void Port::connect(const UniqueId& job, Device::Connected done) {
  if (!is_usable()) return;
  generation_ += 1;
  attempt_at_ = now();
  attempt_id_ = UniqueId::random().low;
  wire::Hello hello;
  hello.job = attempt_job_ = job;
  hello.source = contact_.process();
  hello.target = contact_.peer();
  hello.link_id = attempt_id_;
  hello.generation = generation_;
  hello.rail = contact_.peer_name(device_.name());
  attempt_ = device_.connect(*contact_.address(device_.name()), hello, std::move(done));
}

void Port::attempt_ended(const absl::Status& why) {
  attempt_.reset();
  const bool is_answer = absl::IsAlreadyExists(why) || absl::IsNotFound(why);
  if (why.ok() || is_answer) refusals_.answered();
  if (why.ok()) return;
  log().debug("no link to {} on {}: {}", contact_.description(), device_.name(),
              std::string(why.message()));
  last_error_ = why;
  refusals_.attempt_failed(absl::IsUnavailable(why), now());
  retry_.attempt_failed(now());
}

// If two connections cross, both sides keep the one of the higher generation, or, if those are
// equal, the one made by the process of the smaller id.
wire::WelcomeCode Port::answer(const wire::Hello& hello) const {
  const bool is_old = link_ != nullptr && hello.generation <= link_generation_;
  const bool is_own_first = contact_.process() < contact_.peer();
  const bool is_crossed = is_connecting() && (hello.generation < generation_ ||
                                              (hello.generation == generation_ && is_own_first));
  return is_old || is_crossed ? wire::WelcomeCode::kDuplicate : wire::WelcomeCode::kAccepted;
}

// ---- The life of a link ------------------------------------------------------------------------

void Port::link_up(std::unique_ptr<Link> link, LinkOwner* owner, uint64_t id, uint32_t generation) {
  attempt_.reset();
  generation_ = link_generation_ = generation;
  refusals_.link_up();
  retry_.link_up(now());
  begin_health(now());
  link_ = std::move(link);
  link_->start(owner, rail(), id);
  if (has_been_up_) device_.counters().reconnections += 1;
  has_been_up_ = true;
}

void Port::begin_health(Nanos time) {
  // After a longer gap the path may be another one.
  const bool is_successor = time - outage_.since() <= 2 * Retry::kLongestRest;
  pulse_.begin(time, is_successor ? still_since_ : 0);
  loss_.begin();
  up_at_ = judged_at_ = time;
}

// If a peer has connected before its name is known, the log names it once it is.
void Port::tell_up() {
  auto level = outage_.end() ? spdlog::level::warn : spdlog::level::info;
  if (!contact_.is_described()) level = spdlog::level::debug;
  log().log(level, "the link to {} on {} is {}", contact_.description(), device_.name(),
            last_link_ != 0 ? "up again" : "up");
}

void Port::link_failed(const absl::Status& why) {
  refusals_.link_down(/*by_peer=*/absl::IsUnavailable(why), now());
}

wire::LinkDown Port::last_words(bool is_missed) {
  const uint32_t lost_packet = this->lost_packet();
  if (lost_packet != 0) note_large_frames(lost_packet, Outage::Way::kTo, is_missed);
  return {link_->id(), lost_packet};
}

void Port::link_down(const absl::Status& why) {
  last_link_ = link_->id();
  device_.trial().lost(last_link_);
  link_.reset();
  is_ack_due_ = false;
  last_error_ = why;
  outage_.begin(now());
  still_since_ = pulse_.still_since();
  retry_.link_died(now());
}

void Port::tell_down(const absl::Status& why, bool is_missed) {
  device_.counters().failures += 1;
  note_failure(why);
  const bool is_news = is_missed && outage_.tell(now());
  log().log(is_news ? spdlog::level::warn : spdlog::level::info, "the link to {} on {} is down: {}",
            contact_.description(), device_.name(), std::string(why.message()));
}

// This end may have seen the link end without knowing the reason.
absl::Status Port::peer_gave_up(const wire::LinkDown& down, const Link& by, bool is_missed) {
  if (down.link == 0) return absl::OkStatus();  // no link's id; last_link_ is 0 if none has died
  const bool is_up = link_ != nullptr && link_.get() != &by && link_->id() == down.link;
  if (!is_up && last_link_ != down.link) return absl::OkStatus();
  std::string why = "the peer gave the link up";
  if (down.lost_packet != 0) {
    note_large_frames(down.lost_packet, Outage::Way::kFrom, is_missed);
    absl::StrAppend(&why, ": ", large_are_lost(down.lost_packet));
  }
  if (is_up) return absl::UnavailableError(why);
  if (down.lost_packet != 0) {
    last_error_ = absl::UnavailableError(why);
    note_failure(last_error_);
  }
  return absl::OkStatus();
}

void Port::note_failure(const absl::Status& why) {
  device_.counters().last_failure =
      absl::StrCat(contact_.description(), ": ", std::string(why.message()));
}

void Port::stop() noexcept {
  attempt_.reset();
  if (link_ != nullptr) link_->stop();
}

void Port::shut_down() {
  attempt_.reset();
  if (link_ != nullptr) link_->shut_down();
}

void Port::flush_ack() {
  if (is_ack_due_ && link_ != nullptr) link_->flush_ack();
  is_ack_due_ = false;
}

// ---- How the link is ---------------------------------------------------------------------------

void Port::heard(wire::FrameType type) { pulse_.heard(now(), is_answer(type)); }

bool Port::ask() {
  if (link_ == nullptr || is_asked()) return false;
  pulse_.asked(now());
  link_->send(wire::FrameType::kPing, {});
  return true;
}

void Port::ping() {
  if (pulse_.silence() < Pulse::kProcessDead) link_->send(wire::FrameType::kPing, {});
}

void Port::send_burst(int frames, Nanos time) {
  link_->send_burst(frames);
  pulse_.asked(time);
}

Pulse::State Port::look(Nanos waiting_since, Nanos siblings_heard, Nanos time) {
  return pulse_.look(link_->health(), waiting_since, siblings_heard, time);
}

bool Port::judge_losses(Nanos time) {
  const Nanos since = std::exchange(judged_at_, time);
  const Link::Packets packets = link_->health().packets;
  const bool is_new = time - up_at_ < RateTrial::kLongest;
  if (is_new && device_.trial().has_disturbed(since, time)) {
    loss_.pass_over(packets);
    return false;
  }
  if (!loss_.look(packets)) return false;
  log().info("the link to {} on {} {}", contact_.description(), device_.name(),
             is_lossy() ? "loses frames, so nezha prefers other rails" : "no longer loses frames");
  return true;
}

// If there is no other link, a dead link cannot be told from a peer that stands still. A new link
// can tell: it comes up only if the peer's process answers. So it shows, too, that the path loses
// large frames or has forgotten the connection.
bool Port::is_to_be_remade(Nanos time) const {
  if (trouble() != Pulse::Trouble::kLargeFrames && trouble() != Pulse::Trouble::kMachine) {
    return false;
  }
  return pulse_.silence() >= Pulse::kRemade && !is_connecting() &&
         retry_.due(time, /*is_last_resort=*/true);
}

absl::Status Port::silence_error() const {
  if (trouble() == Pulse::Trouble::kLargeFrames) {
    return absl::DeadlineExceededError(trouble_text(/*with_time=*/false));
  }
  return absl::DeadlineExceededError(absl::StrCat("nothing was acknowledged for ",
                                                  pulse_.silence() / kMillisecond,
                                                  " ms while other rails progressed"));
}

absl::Status Port::remade_error() const {
  const std::string trouble = link_ == nullptr ? "" : trouble_text(/*with_time=*/false);
  return absl::DeadlineExceededError(
      absl::StrCat(trouble, trouble.empty() ? "" : "; ", "this rank made the link anew"));
}

// Says why the link stands still; "" if it does not. Texts that are kept leave out the time, which
// goes on.
std::string Port::trouble_text(bool with_time) const {
  const Nanos still = now() - pulse_.still_since();
  const std::string since = with_time ? absl::StrCat(" for ", still / kMillisecond, " ms") : "";
  switch (trouble()) {
    case Pulse::Trouble::kNone:
      return "";
    case Pulse::Trouble::kLargeFrames:
      return large_are_lost(largest_packet(*link_), since);
    case Pulse::Trouble::kMachine:
      return absl::StrCat("the peer's host has confirmed nothing", since);
    case Pulse::Trouble::kProcess:
      return absl::StrCat("the peer's host confirms what is sent, but its process has not answered",
                          since);
  }
  return "";
}

// Returns the size, in bytes, of packets that do not reach the peer by the link though small ones
// do; 0 if their size is not what is wrong.
uint32_t Port::lost_packet() const {
  const bool is_by_size = pulse_.is_owed() && trouble() == Pulse::Trouble::kLargeFrames;
  return is_by_size ? largest_packet(*link_) : 0;
}

// The log warns only once, since the links of such a rail come up and die again and again.
void Port::note_large_frames(uint32_t lost_packet, Outage::Way way, bool is_missed) {
  const bool is_news = outage_.lose_large(way, lost_packet, now()) && is_missed;
  log().log(is_news ? spdlog::level::warn : spdlog::level::info,
            "{} do not get through {} {} on {}, though small ones do: check the MTU of all hosts"
            " and switches on the path",
            large_frames(lost_packet), word_for(way), contact_.description(), device_.name());
}

void Port::passed(uint32_t bytes, Outage::Way way) {
  if (!outage_.pass(way, bytes)) return;
  log().warn("large frames get through {} {} on {} again", word_for(way), contact_.description(),
             device_.name());
}

// ---- What is known of the rail -----------------------------------------------------------------

std::string Port::state() const {
  const std::string* address = contact_.address(device_.name());
  if (address == nullptr) return "the peer has no such rail";
  if (link_ != nullptr) {
    std::string trouble = trouble_text(/*with_time=*/true);
    if (!trouble.empty()) return trouble;
    // A link that is up shows nothing about large frames.
    const uint32_t packet = outage_.lost_packet();
    return packet == 0 ? "connected" : large_are_lost(packet);
  }
  if (!last_error_.ok()) return std::string(last_error_.message());
  if (!device_.carrier()) return "the interface has no carrier";
  return absl::StrCat("no answer yet from ", *address);
}

Nanos Port::missing_since(Nanos time) const {
  return has_been_up_ || outage_.is_long(time) ? outage_.since() : 0;
}

void Port::tell_of_outage(Nanos time) {
  if (!outage_.is_long(time) || !outage_.tell(time)) return;
  log().warn("there has been no link to {} on {} for {} s: {}", contact_.description(),
             device_.name(), (time - outage_.since()) / kSecond, state());
}

}  // namespace nezha
