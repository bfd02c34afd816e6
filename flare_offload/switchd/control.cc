#include "flare_offload/switchd/control.h"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"

namespace nezha::flare {

absl::StatusOr<std::unique_ptr<Control>> Control::listen(const Address& address,
                                                         const Secret& secret, Server* server) {
  absl::StatusOr<tcp::Socket> socket = listen_at(address);
  if (!socket.ok()) return socket.status();
  return std::unique_ptr<Control>(new Control(*std::move(socket), secret, server));
}

void Control::add_to(std::vector<pollfd>& awaited) const {
  // Nobody is accepted beyond the limit, and who waits to be would wake this up again and again.
  if (managers_.size() < kMaxManagers) awaited.push_back({listener_.fd(), POLLIN, 0});
  for (const Manager& manager : managers_) {
    const bool writes = manager.stream->wants_to_write();
    awaited.push_back(
        {manager.stream->fd(), static_cast<short>(writes ? POLLIN | POLLOUT : POLLIN), 0});
  }
}

Nanos Control::next_due() const {
  Nanos next = std::numeric_limits<Nanos>::max();
  for (const auto& [session, ends] : leases_) next = std::min(next, ends);
  for (const Manager& manager : managers_) {
    if (!manager.is_greeted) next = std::min(next, manager.accepted + kProofTime);
  }
  return next;
}

void Control::handle() {
  accept_some();
  std::erase_if(managers_, [this](Manager& manager) { return !serve(manager); });
  expire();
}

void Control::accept_some() {
  while (managers_.size() < kMaxManagers) {
    tcp::Socket socket(accept4(listener_.fd(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (socket.fd() < 0) return;
    tcp::set_stream_options(socket.fd());
    auto stream = SecureStream::over(std::move(socket), SecureStream::Role::kServer,
                                     SecureStream::Service::kSwitch, secret_);
    if (stream.ok()) managers_.push_back({*std::move(stream), now()});
  }
}

bool Control::serve(Manager& manager) {
  SecureStream& stream = *manager.stream;
  absl::Status status = stream.drive([&](const std::string& text) { on_message(stream, text); });
  if (status.ok() && stream.is_proven() && !manager.is_greeted) {
    manager.is_greeted = true;
    message::Has has;
    has.memory = server_->memory();
    for (const auto& [session, ends] : leases_) has.sessions.push_back(session);
    stream.send(message::encode(has));
  }
  // What was said in answer goes now.
  if (status.ok())
    status = stream.drive([&](const std::string& text) { on_message(stream, text); });
  return status.ok() && (manager.is_greeted || now() < manager.accepted + kProofTime);
}

void Control::on_message(SecureStream& to, const std::string& text) {
  const absl::StatusOr<message::Message> parsed = message::parse(text);
  if (!parsed.ok()) return;  // of a version that knows more
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

// All of the streams, or none.
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
  // A manager that does not hear it now is dropped when it is served next.
  for (Manager& manager : managers_) (void)serve(manager);
}

}  // namespace nezha::flare
