// SPDX-License-Identifier: Apache-2.0
#include "transport/rdma/end.h"

#include <sys/epoll.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"

namespace nezha::rdma {

RdmaEnd::RdmaEnd(Progress& progress, std::unique_ptr<RdmaLink> link)
    : progress_(progress),
      own_(link->greeting()),
      work_(std::make_shared<Work>(Work{.end = this, .link = std::move(link)})),
      timeout_(progress, [this] {
        end(absl::DeadlineExceededError(absl::StrCat(
            work_->link->adapter().choice().device, ": no RDMA connection came about within ",
            kConnecting / kSecond, " s",
            own_.is_iwarp ? "; a firewall must let the ports of the device pass, too, and not only "
                            "those of NEZHA_PORTS"
                          : "")));
      }) {}

RdmaEnd::~RdmaEnd() { let_go(); }

absl::Status RdmaEnd::check(absl::string_view peers_greeting) const {
  const auto peers = decode_greeting(peers_greeting);
  if (!peers.ok()) return peers.status();
  return check_networks(own_, *peers, work_->link->adapter().choice().device);
}

void RdmaEnd::make(net::Socket socket, absl::string_view peers_greeting, bool is_accepting,
                   Made made) {
  socket_ = std::move(socket);
  is_accepting_ = is_accepting;
  made_ = std::move(made);
  const auto peers = decode_greeting(peers_greeting);
  absl::Status status = peers.ok() ? begin(*peers) : peers.status();
  if (!status.ok()) end(std::move(status));
}

absl::Status RdmaEnd::begin(const Greeting& peers) {
  absl::Status status = progress_.add(socket_.fd(), this, EPOLLIN);
  if (!status.ok()) return status;
  is_registered_ = true;
  timeout_.start(now() + (is_accepting_ ? kAccepting : kConnecting));
  RdmaLink* const link = work_->link.get();
  if (!own_.is_iwarp) return connect_aside([link, peers] { return link->connect(peers); });
  status = link->connect(peers);
  if (!status.ok()) return status;
  ConnectionManager& connections = *link->adapter().connections();
  connections.set_end(own_.token, this);
  if (is_accepting_) return absl::OkStatus();
  const Gid peer{.gid = peers.gid, .interface = link->adapter().choice().gid.interface};
  net::Address to = peer.address();
  to.set_port(peers.port);
  return connections.connect(own_.token, to, peers.token);
}

// ---- This end's queue pair ---------------------------------------------------------------------

absl::Status RdmaEnd::connect_aside(std::function<absl::Status()> connect) {
  is_at_work_ = true;
  return progress_.run_aside(
      [work = work_, connect = std::move(connect)] { work->outcome = connect(); },
      [work = work_] {
        if (work->end != nullptr) work->end->on_outcome(work->outcome);
      });
}

void RdmaEnd::on_outcome(const absl::Status& outcome) {
  is_at_work_ = false;
  if (!outcome.ok()) return end(outcome);
  is_connected_ = is_connected_ || !own_.is_iwarp;
  go_on();
}

void RdmaEnd::on_route(const std::function<absl::Status()>& connect) {
  absl::Status status = connect_aside(connect);
  if (!status.ok()) on_disconnected(status);
}

// This may come before the call that connects has returned.
void RdmaEnd::on_connected() {
  is_connected_ = true;
  soon([](RdmaEnd& it) { it.go_on(); });
}

void RdmaEnd::on_disconnected(const absl::Status& why) {
  soon([why](RdmaEnd& it) { it.end(why); });
}

// Does not call from inside of the connection manager, which may be destroyed with the link.
void RdmaEnd::soon(std::function<void(RdmaEnd&)> call) {
  progress_.defer([work = work_, call = std::move(call)] {
    if (work->end != nullptr) call(*work->end);
  });
}

// ---- Both ends ---------------------------------------------------------------------------------

void RdmaEnd::on_events(uint32_t) {
  char byte = 0;
  const ssize_t got = ::recv(socket_.fd(), &byte, 1, 0);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
  // A peer that closes its socket before it has read all of it resets the connection.
  if (got == 0 || (got < 0 && errno == ECONNRESET)) {
    return end(absl::UnavailableError("the peer closed the connection in the handshake"));
  }
  if (got < 0) return end(absl::UnavailableError(strerror(errno)));
  const bool is_due = (is_accepting_ || has_told_) && !has_heard_;
  absl::Status status = check_ready(byte, is_due);
  if (!status.ok()) return end(std::move(status));
  has_heard_ = true;
  go_on();
}

// The accepting end's link says that it is ready when it is started, since the link is up then.
void RdmaEnd::go_on() {
  if (is_at_work_ || !is_connected_) return;
  if (work_->link->has_failed()) {
    return end(absl::AbortedError(absl::StrCat(work_->link->adapter().choice().device,
                                               ": the queue pair failed in the handshake")));
  }
  if (!is_accepting_ && !std::exchange(has_told_, true)) {
    absl::Status status = say_ready(socket_.fd());
    if (!status.ok()) return end(std::move(status));
  }
  if (!has_heard_) return;
  unregister();
  work_->link->adopt(std::move(socket_), is_accepting_);
  end(std::move(work_->link));
}

// This is done last, since the callback may destroy this object.
void RdmaEnd::end(absl::StatusOr<std::unique_ptr<Link>> link) {
  let_go();
  const Made made = std::move(made_);
  made(std::move(link));
}

void RdmaEnd::unregister() {
  timeout_.cancel();
  if (!std::exchange(is_registered_, false)) return;
  progress_.remove(socket_.fd());
  if (own_.is_iwarp) work_->link->adapter().connections()->set_end(own_.token, nullptr);
}

void RdmaEnd::let_go() {
  unregister();
  if (work_ == nullptr) return;
  work_->end = nullptr;
  if (work_->link != nullptr) work_->link->give_up();
  work_ = nullptr;
}

}  // namespace nezha::rdma
