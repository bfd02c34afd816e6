// SPDX-License-Identifier: Apache-2.0
// One thread's part of the switch: a port, and the sessions whose frames come there.
//
// This is the paper's hierarchical FCFS with one core a block (D. De Sensi et al.: Flare, 2021,
// section 5): all blocks of a session belong to one lane, chosen by the session's number, and are
// served first come, first served. So nothing is locked, and a session's frames do not delay
// sessions of other lanes. To use several cores for one job, give it several sessions, as the
// streams of engine/switch_session.h are: consecutive numbers belong to different lanes.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/functional/function_ref.h"
#include "flare_offload/switchd/session.h"
#include "flare_offload/udp/udp_port.h"

namespace nezha::flare {

struct LaneCounters {
  uint64_t malformed = 0;
  uint64_t unknown = 0;          // frames of no session here
  uint64_t handed_over = 0;      // frames for other lanes, which came in one train with this one's
  uint64_t not_handed_over = 0;  // frames that were dropped, because too many waited there

  LaneCounters& operator+=(const LaneCounters& other);
};

// The class is not thread-safe.
class Lane {
 public:
  // A function that gives a datagram to the lane that it belongs to. It returns false if the
  // datagram was dropped.
  using HandOver = absl::FunctionRef<bool(size_t lane, absl::Span<const std::byte> datagram,
                                          const Address& from)>;

  // Opens the ports of `count` lanes at one address, in the lanes' order.
  static absl::StatusOr<std::vector<UdpPort>> open_ports(const Address& address, size_t count);
  static size_t lane_of(uint32_t session, size_t count);

  // `index` is the lane's place among `count` lanes.
  Lane(UdpPort port, size_t index, size_t count)
      : port_(std::move(port)), index_(index), count_(count) {}
  Lane(const Lane&) = delete;
  Lane& operator=(const Lane&) = delete;

  UdpPort& port() { return port_; }
  void add(uint32_t number, std::unique_ptr<Session> session);
  // Takes out the session, or returns null if there is none of that number.
  std::unique_ptr<Session> take(uint32_t number);

  // Handles some of the frames that have come, or hands them over to their lanes. Returns how many
  // datagrams it received.
  size_t receive(HandOver hand_over);
  // Handles what another lane has handed over; flush() sends the replies.
  void handle(absl::Span<const std::byte> datagram, const Address& from);
  void flush() { port_.flush(); }

  const LaneCounters& counters() const { return counters_; }
  const UdpCounters& port_counters() const { return port_.counters(); }
  // Returns each session's number, and its counters as JSON.
  std::vector<std::pair<uint32_t, std::string>> statistics() const;

 private:
  void handle(absl::Span<const std::byte> datagram, const Frame& frame, const Address& from);

  UdpPort port_;
  const size_t index_;
  const size_t count_;
  absl::flat_hash_map<uint32_t, std::unique_ptr<Session>> sessions_;
  LaneCounters counters_;
};

}  // namespace nezha::flare
