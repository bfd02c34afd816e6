// SPDX-License-Identifier: Apache-2.0
#include "flare_offload/core/window.h"

#include <algorithm>
#include <cstdlib>

namespace nezha::flare {
namespace {

// Compares sequence numbers, which wrap.
bool is_after(uint32_t a, uint32_t b) { return a - b - 1 < Window::kMaxUnfinished; }

}  // namespace

Window::Window(uint32_t size, uint32_t first_seq, const RetryTiming& timing, const Stagger& stagger)
    : timing_(timing),
      stagger_(stagger),
      places_(size),
      sent_(size),
      limit_(size),
      lowest_(first_seq),
      end_(first_seq) {
  ready_.reserve(size);
  overdue_.reserve(size);
  for (uint32_t i = 0; i < size; ++i) place_of(first_seq + i).seq = first_seq + i;
}

uint32_t Window::extend(uint32_t count) {
  const uint32_t first = end_;
  end_ += count;
  if (unfinished_ == 0) is_flowing_ = false;
  unfinished_ += count;
  const auto places = static_cast<uint32_t>(places_.size());
  for (uint32_t i = 0; i < std::min(count, places); ++i) {
    const Place& place = place_of(first + i);
    if (place.attempts == 0 && place.seq == first + i) make_ready(place);
  }
  return first;
}

void Window::make_ready(const Place& place) {
  if (!is_after(end_, place.seq)) return;
  ready_.push_back(place.seq);
  std::push_heap(ready_.begin(), ready_.end(), comes_later());
}

uint32_t Window::take_next() {
  std::pop_heap(ready_.begin(), ready_.end(), comes_later());
  const uint32_t seq = ready_.back();
  ready_.pop_back();
  return seq;
}

uint32_t Window::take_ready(uint32_t seq) {
  if (ready_.front() == seq) return take_next();
  std::erase(ready_, seq);
  std::make_heap(ready_.begin(), ready_.end(), comes_later());
  return seq;
}

std::optional<uint32_t> Window::take_new(Nanos now) {
  if (ready_.empty()) return {};
  const bool is_full = in_flight_ >= limit_.blocks();
  if (is_full && (lowest_ == end_ || in_flight(lowest_) != nullptr)) return {};
  const uint32_t seq = is_full ? take_ready(lowest_) : take_next();
  if (in_flight_++ == 0) heard_ = now;
  Place& place = place_of(seq);
  place.sent = now;
  place.waited = false;
  place.is_timed = is_flowing_;
  place.interval = timeout();
  send(place, now);
  return seq;
}

std::optional<uint32_t> Window::take_overdue(Nanos now) {
  for (;;) {
    if (overdue_.empty()) {
      if (now < next_due_) return {};
      list_overdue(now);
      if (overdue_.empty()) return {};
    }
    Place& place = place_of(overdue_.back());
    overdue_.pop_back();
    place.is_listed = false;
    if (place.attempts == 0 || place.due > now) continue;  // it has been answered meanwhile
    if (!place.is_lost) place.interval = std::min(2 * place.interval, timing_.most);
    send(place, now);
    ++resent_;
    return place.seq;
  }
}

// Looks at all places. That is rare: the next time is when the earliest of them is due.
void Window::list_overdue(Nanos now) {
  next_due_ = kNever;
  for (Place& place : places_) {
    if (place.due > now) {
      next_due_ = std::min(next_due_, place.due);
    } else {
      add_overdue(place);
    }
  }
}

void Window::add_overdue(Place& place) {
  if (place.is_listed) return;
  place.is_listed = true;
  overdue_.push_back(place.seq);
}

uint16_t Window::number_of(uint32_t seq) {
  Place& place = place_of(seq);
  place.number = sent_.add(seq);
  return place.number;
}

NumberRange Window::lost_before(const FrameHeader& header) {
  const NumberRange lost = results_.on_frame(header);
  limit_.on_lost(lost.count);
  return lost;
}

void Window::on_lost(const NumberRange& numbers, Nanos now) {
  for (uint16_t i = 0; i < std::min(numbers.count, kMaxLost); ++i) {
    const auto number = static_cast<uint16_t>(numbers.first + i);
    const auto seq = sent_.seq_of(number);
    Place* place = seq ? in_flight(*seq) : nullptr;
    if (place == nullptr || place->number != number) continue;  // answered, or sent again since
    heard_ = now;
    if (!place->is_lost) limit_.on_lost(1);
    place->is_lost = true;
    place->due = now;
    add_overdue(*place);
  }
}

bool Window::on_result(uint32_t seq, Nanos now) {
  Place* place = in_flight(seq);
  if (place == nullptr) return false;
  heard_ = now;
  if (!place->waited) learn(*place, now);
  place->seq += static_cast<uint32_t>(places_.size());
  place->attempts = 0;
  place->due = kNever;
  make_ready(*place);
  while (place_of(lowest_).seq != lowest_) ++lowest_;
  is_flowing_ = true;
  --in_flight_;
  --unfinished_;
  if (in_flight_ == 0) next_due_ = kNever;
  return true;
}

void Window::on_pending(uint32_t seq, Nanos now) {
  Place* place = in_flight(seq);
  if (place == nullptr) return;
  heard_ = now;
  place->waited = true;
  place->due = now + place->interval;
}

Window::Place* Window::in_flight(uint32_t seq) {
  Place& place = place_of(seq);
  return place.attempts > 0 && place.seq == seq ? &place : nullptr;
}

void Window::send(Place& place, Nanos now) {
  ++place.attempts;
  place.is_lost = false;
  place.due = now + place.interval;
  next_due_ = std::min(next_due_, place.due);
}

Nanos Window::timeout() const {
  const Nanos learned = smoothed_ == 0 ? timing_.first : smoothed_ + 4 * variation_;
  return std::max(std::clamp(learned, timing_.least, timing_.most), backed_off_);
}

void Window::learn(const Place& place, Nanos now) {
  if (place.attempts > 1) {
    backed_off_ = std::max(backed_off_, place.interval);
    return;
  }
  backed_off_ = 0;
  const Nanos round_trip = now - place.sent;
  if (place.is_timed) limit_.on_round_trip(round_trip);
  if (smoothed_ == 0) {
    smoothed_ = std::max<Nanos>(round_trip, 1);
    variation_ = round_trip / 2;
  } else {
    variation_ += (std::abs(smoothed_ - round_trip) - variation_) / 4;
    smoothed_ += (round_trip - smoothed_) / 8;
  }
}

}  // namespace nezha::flare
