// SPDX-License-Identifier: Apache-2.0
#include "flare_offload/switchd/control.h"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/log.h"

namespace nezha::flare {

absl::StatusOr<std::unique_ptr<Control>> Control::listen(const Address& address,
                                                         const Secret& secret, Server* server) {
  absl::StatusOr<net::Socket> socket = listen_at(address);
  if (!socket.ok()) return socket.status();
  return std::unique_ptr<Control>(new Control(*std::move(socket), secret, server));
}

void Control::add_to(std::vector<pollfd>& awaited) const {
  // During a pause waiting connections would wake this up again and again.
  if (now() >= resumes_) awaited.push_back({listener_.fd(), POLLIN, 0});
  for (const Manager& manager : managers_) {
    const bool writes = manager.stream->wants_to_write();
    awaited.push_back(
        {manager.stream->fd(), static_cast<short>(writes ? POLLIN | POLLOUT : POLLIN), 0});
  }
}

Nanos Control::next_due() const {
  Nanos next = resumes_ > now() ? resumes_ : std::numeric_limits<Nanos>::max();
  for (const auto& [session, ends] : leases_) next = std::min(next, ends);
  for (const Manager& manager : managers_) {
    if (!manager.is_greeted) next = std::min(next, manager.heard + kProofTime);
  }
  return next;
}

void Control::handle() {
  accept_some();
  std::erase_if(managers_, [this](Manager& manager) { return !serve(manager); });
  drop_silent_managers();
  expire();
}

void Control::accept_some() {
  if (now() < resumes_) return;
  for (size_t count = 0; count < kMaxUnproven; ++count) {
    Address from;
    socklen_t length = sizeof from.storage;
    net::Socket socket(
        accept4(listener_.fd(), from.sockaddr_ptr(), &length, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (socket.fd() < 0) {
      const int error = errno;
      if (error == EAGAIN || error == EINTR || error == ECONNABORTED) return;
      if (drop_unproven()) continue;
      log().warn("nezha-switch: accepting a connection failed, so it accepts none for {} ms: {}",
                 kPause / kMillisecond, strerror(error));
      resumes_ = now() + kPause;
      return;
    }
    if (managers_.size() - greeted() == kMaxUnproven) drop_unproven();
    net::set_stream_options(socket.fd());
    auto stream = SecureStream::over(std::move(socket), SecureStream::Role::kServer,
                                     SecureStream::Service::kSwitch, secret_);
    if (stream.ok()) managers_.push_back({*std::move(stream), from.host(), now()});
  }
}

size_t Control::greeted() const {
  return static_cast<size_t>(
      std::count_if(managers_.begin(), managers_.end(),
                    [](const Manager& manager) { return manager.is_greeted; }));
}

// Drops the oldest unproven connection of the host that has most of them. So peers without the
// secret on fewer than kMaxUnproven hosts do not keep out a manager on another host, even if they
// reconnect at once.
bool Control::drop_unproven() {
  std::map<absl::string_view, int> counts;
  for (const Manager& manager : managers_) {
    if (!manager.is_greeted) ++counts[manager.host];
  }
  if (counts.empty()) return false;
  const auto most =
      std::max_element(counts.begin(), counts.end(),
                       [](const auto& a, const auto& b) { return a.second < b.second; });
  managers_.erase(std::find_if(managers_.begin(), managers_.end(), [&](const Manager& manager) {
    return !manager.is_greeted && manager.host == most->first;
  }));
  return true;
}

// Such managers may have died with their hosts: one that lives extends its leases.
void Control::drop_silent_managers() {
  const auto is_silent = [](const Manager& a, const Manager& b) {
    return std::pair(!a.is_greeted, a.heard) < std::pair(!b.is_greeted, b.heard);
  };
  while (greeted() > kMaxManagers) {
    managers_.erase(std::min_element(managers_.begin(), managers_.end(), is_silent));
  }
}

void Control::greet(Manager& manager) {
  manager.heard = now();
  message::Has has;
  has.memory = server_->memory();
  for (const auto& [session, ends] : leases_) has.sessions.push_back(session);
  manager.stream->send(message::encode(has));
}

bool Control::serve(Manager& manager) {
  SecureStream& stream = *manager.stream;
  const auto handle = [&](const std::string& text) {
    manager.heard = now();
    on_message(stream, text);
  };
  absl::Status status;
  bool is_new = false;
  do {
    status = stream.drive(handle);
    // This is checked each time that something may have come: perhaps nothing more will.
    is_new = status.ok() && stream.is_proven() && !std::exchange(manager.is_greeted, true);
    if (is_new) greet(manager);
  } while (is_new);  // sends the greeting
  if (absl::IsUnauthenticated(status)) tell_of_refusal(manager, status);
  return status.ok() && (manager.is_greeted || now() < manager.heard + kProofTime);
}

void Control::tell_of_refusal(const Manager& manager, const absl::Status& why) {
  // The limit is by host, and not by the reason, which has the name that the client gives itself.
  const auto untold = refusals_.tell_of(manager.host, now());
  if (!untold) return;
  log().warn(
      "nezha-switch: a connection from {} is refused: {}; the manager's and this switch's files of "
      "--secret must hold the same secret{}",
      manager.host, std::string(why.message()), and_others(*untold));
}

void Control::on_message(SecureStream& to, const std::string& text) {
  const absl::StatusOr<message::Message> parsed = message::parse(text);
  if (!parsed.ok()) return;  // a later version's
  if (const auto* wanted = std::get_if<message::Install>(&*parsed)) {
    install(to, *wanted);
  } else if (const auto* extended = std::get_if<message::Extend>(&*parsed)) {
    for (const uint32_t session : extended->sessions) {
      const auto lease = leases_.find(session);
      if (lease != leases_.end()) lease->second = now() + extended->lease;
    }
  } else if (const auto* removed = std::get_if<message::Remove>(&*parsed)) {
    for (const uint32_t session : removed->sessions) remove(session);
  }
}

// Installs all of the streams, or none.
void Control::install(SecureStream& to, const message::Install& install) {
  absl::StatusOr<SessionSpec> spec = parse_session(install.spec);
  if (!spec.ok()) return;  // it names no session that could be refused
  const uint32_t first = spec->session;
  for (int stream = 0; stream < install.streams; ++stream) {
    spec->session = first + static_cast<uint32_t>(stream);
    const absl::Status status = server_->install(*spec);
    if (status.ok()) {
      leases_[spec->session] = now() + install.lease;
      continue;
    }
    for (uint32_t session = first; session != spec->session; ++session) remove(session);
    to.send(message::encode(message::Refused{first, std::string(status.message())}));
    return;
  }
  to.send(message::encode(message::Installed{first}));
}

void Control::remove(uint32_t session) {
  if (leases_.erase(session) > 0) server_->remove(session);
}

void Control::expire() {
  message::Expired expired;
  const Nanos time = now();
  for (const auto& [session, ends] : leases_) {
    if (ends <= time) expired.sessions.push_back(session);
  }
  if (expired.sessions.empty()) return;
  for (const uint32_t session : expired.sessions) remove(session);
  for (Manager& manager : managers_) {
    if (manager.is_greeted) manager.stream->send(message::encode(expired));
  }
  // A manager whose connection fails now is dropped when it is served next.
  for (Manager& manager : managers_) (void)serve(manager);
}

}  // namespace nezha::flare
