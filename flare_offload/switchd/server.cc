// SPDX-License-Identifier: Apache-2.0
#include "flare_offload/switchd/server.h"

#include <sys/eventfd.h>

#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/log.h"

namespace nezha::flare {
namespace {

absl::Status of_session(uint32_t session, const absl::Status& status) {
  return absl::Status(status.code(), absl::StrCat("session ", session, ": ", status.message()));
}

}  // namespace

absl::StatusOr<std::unique_ptr<Server>> Server::listen(const Address& address, size_t memory,
                                                       int threads) {
  absl::StatusOr<std::vector<UdpPort>> ports =
      Lane::open_ports(address, static_cast<size_t>(threads));
  if (absl::IsUnimplemented(ports.status())) {
    log().warn("nezha-switch: it uses one thread in place of {}: {}", threads,
               std::string(ports.status().message()));
    ports = Lane::open_ports(address, 1);
  }
  if (!ports.ok()) return ports.status();
  const size_t count = ports->size();
  std::unique_ptr<Server> server(new Server(memory));
  std::vector<std::unique_ptr<Worker>>& workers = server->workers_;
  for (size_t i = 0; i < count; ++i) {
    workers.push_back(std::make_unique<Worker>(std::move((*ports)[i]), i, count, workers));
  }
  if (server->failure_fd() < 0) return absl::ErrnoToStatus(errno, "making an eventfd");
  for (const auto& worker : workers) {
    const auto tell = [fd = server->failure_fd()] { eventfd_write(fd, 1); };
    if (absl::Status status = worker->start(tell); !status.ok()) return status;
  }
  return server;
}

Server::Server(size_t memory)
    : memory_(memory), memory_left_(memory), failed_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {}

// Workers reach each other until the last one has stopped.
Server::~Server() {
  for (const auto& worker : workers_) worker->stop();
}

Worker& Server::worker_of(uint32_t session) {
  return *workers_[Lane::lane_of(session, workers_.size())];
}

absl::Status Server::install(const SessionSpec& spec) {
  if (sessions_.contains(spec.session)) {
    return of_session(spec.session, absl::AlreadyExistsError("it is installed already"));
  }
  const size_t memory = SlotTable::memory_of(spec.table);
  if (memory > memory_left_) {
    return of_session(spec.session,
                      absl::ResourceExhaustedError(absl::StrCat(
                          "its slots take ", memory, " bytes, but only ", memory_left_,
                          " are left; choose a smaller window or payload, or a larger --memory")));
  }
  Worker& worker = worker_of(spec.session);
  absl::StatusOr<std::unique_ptr<Session>> session = Session::install(spec, &worker.port());
  if (!session.ok()) return of_session(spec.session, session.status());
  memory_left_ -= memory;
  sessions_[spec.session] = memory;
  worker.call([&](Lane& lane) { lane.add(spec.session, *std::move(session)); });
  return absl::OkStatus();
}

void Server::remove(uint32_t session) {
  const auto found = sessions_.find(session);
  if (found == sessions_.end()) return;
  std::unique_ptr<Session> removed;  // destroyed here, so that the worker does not wait for it
  worker_of(session).call([&](Lane& lane) { removed = lane.take(session); });
  memory_left_ += found->second;
  sessions_.erase(found);
}

absl::Status Server::failure() {
  for (size_t i = 0; i < workers_.size(); ++i) {
    const absl::Status why = workers_[i]->failure();
    if (why.ok()) continue;
    return absl::Status(why.code(), absl::StrCat("thread ", i, " of ", workers_.size(),
                                                 " has ended: ", why.message()));
  }
  return absl::OkStatus();
}

absl::StatusOr<Address> Server::address() const {
  return net::local_address(workers_[0]->port().fd());
}

std::string Server::statistics() {
  LaneCounters lanes;
  UdpCounters ports;
  std::map<uint32_t, std::string> sessions;
  for (const auto& worker : workers_) {
    worker->call([&](Lane& lane) {
      lanes += lane.counters();
      ports += lane.port_counters();
      for (auto& [number, text] : lane.statistics()) sessions[number] = std::move(text);
    });
  }
  return absl::StrCat(
      "{\"threads\": ", workers_.size(), ", \"received\": ", ports.received,
      ", \"received_bytes\": ", ports.received_bytes, ", \"sent\": ", ports.sent,
      ", \"sent_bytes\": ", ports.sent_bytes, ", \"not_sent\": ", ports.not_sent,
      ", \"batches\": [", absl::StrJoin(ports.batches, ", "),
      "], \"handed_over\": ", lanes.handed_over, ", \"not_handed_over\": ", lanes.not_handed_over,
      ", \"malformed\": ", lanes.malformed, ", \"unknown\": ", lanes.unknown,
      ", \"memory_left\": ", memory_left_, ", \"sessions\": [",
      absl::StrJoin(
          sessions, ", ",
          [](std::string* out, const auto& entry) { absl::StrAppend(out, entry.second); }),
      "]}");
}

}  // namespace nezha::flare
