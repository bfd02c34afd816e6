// SPDX-License-Identifier: Apache-2.0
#include "flare_offload/switchd/lane.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace nezha::flare {
namespace {

constexpr size_t kBytes = 256;  // values of the byte by which the kernel chooses a port

std::string to_json(uint32_t number, size_t thread, const Session& session) {
  const SlotTableCounters& table = session.counters();
  const SessionCounts& counts = session.counts();
  return absl::StrCat("{\"session\": ", number, ", \"thread\": ", thread,
                      ", \"received\": ", counts.received,
                      ", \"received_bytes\": ", counts.received_bytes, ", \"sent\": ", counts.sent,
                      ", \"sent_bytes\": ", counts.sent_bytes, ", \"blocks\": ", table.blocks,
                      ", \"combined\": ", table.combined, ", \"duplicates\": ", table.duplicates,
                      ", \"resent\": ", table.resent, ", \"pendings\": ", table.pendings,
                      ", \"lost\": ", table.lost, ", \"stale\": ", table.stale,
                      ", \"mismatches\": ", table.mismatches,
                      ", \"violations\": ", table.violations, ", \"outdated\": ", counts.outdated,
                      ", \"strangers\": ", counts.strangers, ", \"forged\": ", counts.forged, "}");
}

}  // namespace

LaneCounters& LaneCounters::operator+=(const LaneCounters& other) {
  malformed += other.malformed;
  unknown += other.unknown;
  handed_over += other.handed_over;
  not_handed_over += other.not_handed_over;
  return *this;
}

absl::StatusOr<std::vector<UdpPort>> Lane::open_ports(const Address& address, size_t count) {
  return UdpPort::open_many(address, kMaxDatagram, count, kSessionOffset);
}

// Chooses by the number's lowest byte, which is the first one in a frame.
size_t Lane::lane_of(uint32_t session, size_t count) { return session % kBytes % count; }

void Lane::add(uint32_t number, std::unique_ptr<Session> session) {
  sessions_[number] = std::move(session);
}

std::unique_ptr<Session> Lane::take(uint32_t number) {
  const auto found = sessions_.find(number);
  if (found == sessions_.end()) return nullptr;
  std::unique_ptr<Session> session = std::move(found->second);
  sessions_.erase(found);
  return session;
}

size_t Lane::receive(HandOver hand_over) {
  const size_t count =
      port_.receive([&](absl::Span<const std::byte> datagram, const Address& from) {
        const std::optional<Frame> frame = decode(datagram);
        if (!frame) {
          ++counters_.malformed;
          return;
        }
        const size_t lane = lane_of(frame->header.session, count_);
        if (lane == index_) return handle(datagram, *frame, from);
        const bool is_taken = hand_over(lane, datagram, from);
        ++(is_taken ? counters_.handed_over : counters_.not_handed_over);
      });
  flush();
  return count;
}

void Lane::handle(absl::Span<const std::byte> datagram, const Address& from) {
  if (const std::optional<Frame> frame = decode(datagram)) handle(datagram, *frame, from);
}

void Lane::handle(absl::Span<const std::byte> datagram, const Frame& frame, const Address& from) {
  const auto session = sessions_.find(frame.header.session);
  if (session == sessions_.end()) {
    ++counters_.unknown;
  } else {
    session->second->receive(datagram, frame, from);
  }
}

std::vector<std::pair<uint32_t, std::string>> Lane::statistics() const {
  std::vector<std::pair<uint32_t, std::string>> all;
  for (const auto& [number, session] : sessions_) {
    all.emplace_back(number, to_json(number, index_, *session));
  }
  return all;
}

}  // namespace nezha::flare
