// SPDX-License-Identifier: Apache-2.0
#include "flare_offload/engine/manager_client.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/environment.h"

namespace nezha::flare {

ManagerClient::ManagerClient(Progress& progress, std::string interface, const Address& manager,
                             const Secret& secret, Callbacks callbacks)
    : progress_(progress),
      interface_(std::move(interface)),
      manager_(manager),
      secret_(secret),
      callbacks_(std::move(callbacks)),
      again_(progress, [this] { connect(); }),
      renew_(progress, [this] { renew(); }),
      patience_(progress, [this] { give_up(); }) {}

ManagerClient::~ManagerClient() {
  leave();
  if (connection_ != nullptr && is_ready_) connection_->flush();
}

void ManagerClient::set_local(const Address& local) {
  local_ = local;
  local_.set_port(0);
}

void ManagerClient::join(const message::Join& join) {
  leave();
  join_ = join;
  patience_.start(now() + (is_ready_ ? kPatience : kUnreachable));
  if (is_ready_) {
    connection_->send(message::encode(join));
  } else if (connection_ == nullptr) {
    connect();
  }
}

void ManagerClient::leave() {
  patience_.cancel();
  renew_.cancel();
  if (join_ && is_ready_) {
    connection_->send(message::encode(message::Leave{join_->request, join_->rank}));
  }
  join_.reset();
  granted_.reset();
}

// Returns the name by which the manager calls this rank when it refuses it.
std::string ManagerClient::name() const {
  if (!join_) return "";
  return absl::StrCat("rank ", join_->rank, " of ", join_->size, " of ",
                      message::job_of(join_->request));
}

void ManagerClient::connect() {
  again_.cancel();
  is_ready_ = false;
  auto socket = net::bound_socket(interface_, local_);
  if (!socket.ok()) return on_closed(socket.status());
  connection_ = std::make_unique<SecureConnection>(
      progress_, *std::move(socket), manager_, SecureStream::Service::kManager, secret_, name(),
      SecureConnection::Callbacks{
          .on_ready = [this] { on_ready(); },
          .on_message = [this](const std::string& text) { on_message(text); },
          .on_closed = [this](const absl::Status& why) { on_closed(why); }});
}

void ManagerClient::on_ready() {
  is_ready_ = true;
  if (granted_) {
    renew();
  } else if (join_) {
    patience_.start(now() + kPatience);
    connection_->send(message::encode(*join_));
  }
}

void ManagerClient::on_closed(const absl::Status& why) {
  is_ready_ = false;
  connection_.reset();
  last_error_ = std::string(why.message());
  // A retry would not find the same secret either.
  if (absl::IsUnauthenticated(why) && join_ && !granted_) return on_refused(why);
  if (join_) again_.start(now() + kReconnect);
}

void ManagerClient::on_message(const std::string& text) {
  const absl::StatusOr<message::Message> parsed = message::parse(text);
  if (!parsed.ok() || !join_) return;
  const message::Request& wanted = join_->request;
  if (const auto* granted = std::get_if<message::Granted>(&*parsed)) {
    if (granted->request != wanted || granted_) return;
    granted_ = *granted;
    patience_.cancel();
    renew_.start(now() + granted->lease / 3);
    callbacks_.on_granted(*granted);
  } else if (const auto* rejected = std::get_if<message::Rejected>(&*parsed)) {
    if (rejected->request != wanted || granted_) return;
    join_.reset();
    patience_.cancel();
    callbacks_.on_rejected(wanted.attempt, absl::UnavailableError(rejected->reason));
  } else if (const auto* lost = std::get_if<message::Lost>(&*parsed)) {
    if (lost->request != wanted) return;
    const uint32_t attempt = wanted.attempt;
    join_.reset();
    granted_.reset();
    renew_.cancel();
    patience_.cancel();
    callbacks_.on_lost(attempt, lost->reason);
  }
}

void ManagerClient::renew() {
  if (!granted_ || !join_) return;
  renew_.start(now() + granted_->lease / 3);
  if (!is_ready_) return;
  connection_->send(message::encode(message::Renew{.request = join_->request,
                                                   .rank = join_->rank,
                                                   .size = join_->size,
                                                   .session = granted_->session,
                                                   .streams = granted_->streams,
                                                   .group = granted_->group}));
}

void ManagerClient::on_refused(const absl::Status& why) {
  give_up(absl::UnauthenticatedError(absl::StrCat(
      "the manager at ", manager_.str(), " and ", name(), " do not accept each other: ",
      why.message(), "; the file of NEZHA_FLARE_SECRET (", environment("NEZHA_FLARE_SECRET"),
      " at rank ", join_->rank, ") must hold the same secret as the manager's of --secret")));
}

void ManagerClient::give_up() {
  give_up(absl::UnavailableError(
      is_ready_ ? absl::StrCat("the manager at ", manager_.str(), " has given no session in time")
                : absl::StrCat("the manager at ", manager_.str(), " cannot be reached through ",
                               interface_, ": ", last_error_)));
}

void ManagerClient::give_up(const absl::Status& why) {
  const uint32_t attempt = join_->request.attempt;
  leave();
  // The next join() connects anew: this manager does not answer.
  if (is_ready_) connection_->flush();
  again_.cancel();
  is_ready_ = false;
  connection_.reset();
  callbacks_.on_rejected(attempt, why);
}

}  // namespace nezha::flare
