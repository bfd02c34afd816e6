#include "flare_offload/switchd/server.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace nezha::flare {
namespace {

std::string to_json(uint32_t number, const Session& session) {
  const SlotTableCounters& counters = session.counters();
  return absl::StrCat(
      "{\"session\": ", number, ", \"blocks\": ", counters.blocks,
      ", \"combined\": ", counters.combined, ", \"duplicates\": ", counters.duplicates,
      ", \"stale\": ", counters.stale, ", \"pendings\": ", counters.pendings,
      ", \"lost\": ", counters.lost, ", \"mismatches\": ", counters.mismatches,
      ", \"violations\": ", counters.violations, ", \"outdated\": ", session.outdated(),
      ", \"strangers\": ", session.strangers(), ", \"forged\": ", session.forged(), "}");
}

absl::Status of_session(uint32_t session, const absl::Status& status) {
  return absl::Status(status.code(), absl::StrCat("session ", session, ": ", status.message()));
}

}  // namespace

absl::StatusOr<std::unique_ptr<Server>> Server::listen(const Address& address, size_t memory) {
  absl::StatusOr<UdpPort> port = UdpPort::open(address, kMaxDatagram);
  if (!port.ok()) return port.status();
  return std::unique_ptr<Server>(new Server(*std::move(port), memory));
}

absl::Status Server::install(const SessionSpec& spec) {
  if (sessions_.contains(spec.session)) {
    return of_session(spec.session, absl::AlreadyExistsError("it is installed already"));
  }
  const size_t memory = SlotTable::memory_of(spec.table);
  if (memory > memory_left_) {
    return of_session(spec.session, absl::ResourceExhaustedError(absl::StrCat(
                                        "its slots take ", memory, " bytes, and ", memory_left_,
                                        " are left (a smaller window or payload, or --memory)")));
  }
  absl::StatusOr<std::unique_ptr<Session>> session = Session::install(spec, &port_);
  if (!session.ok()) return of_session(spec.session, session.status());
  memory_left_ -= memory;
  sessions_[spec.session] = *std::move(session);
  return absl::OkStatus();
}

void Server::remove(uint32_t session) {
  const auto found = sessions_.find(session);
  if (found == sessions_.end()) return;
  memory_left_ += found->second->memory();
  sessions_.erase(found);
}

size_t Server::receive() {
  const size_t count = port_.receive([this](absl::Span<const std::byte> datagram,
                                            const Address& from) { handle(datagram, from); });
  port_.flush();
  return count;
}

void Server::handle(absl::Span<const std::byte> datagram, const Address& from) {
  const std::optional<Frame> frame = decode(datagram);
  if (!frame) {
    ++malformed_;
    return;
  }
  const auto session = sessions_.find(frame->header.session);
  if (session == sessions_.end()) {
    ++unknown_;
  } else {
    session->second->receive(datagram, *frame, from);
  }
}

std::string Server::statistics() const {
  const auto append = [](std::string* out, const auto& entry) {
    absl::StrAppend(out, to_json(entry.first, *entry.second));
  };
  return absl::StrCat("{\"received\": ", port_.received(), ", \"sent\": ", port_.sent(),
                      ", \"not_sent\": ", port_.not_sent(), ", \"malformed\": ", malformed_,
                      ", \"unknown\": ", unknown_, ", \"memory_left\": ", memory_left_,
                      ", \"sessions\": [", absl::StrJoin(sessions_, ", ", append), "]}");
}

}  // namespace nezha::flare
