// SPDX-License-Identifier: Apache-2.0
#include "transport/rdma/adapter.h"

#include <fcntl.h>
#include <net/if.h>
#include <sys/epoll.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "common/fork.h"
#include "common/log.h"

namespace nezha::rdma {
namespace {

absl::Status failure(absl::string_view what, const Choice& choice) {
  const int error = errno;
  std::string text = absl::StrCat(choice.device, ": ", what, ": ", strerror(error));
  if (error == ENOMEM) {
    absl::StrAppend(&text,
                    "; the limit of locked memory may be too low (ulimit -l unlimited, or"
                    " LimitMEMLOCK=infinity in the service)");
  }
  return absl::AbortedError(text);
}

bool set_nonblocking(int fd) {
  const int flags = fcntl(fd, F_GETFL);
  return flags >= 0 && fcntl(fd, F_SETFL, flags | O_NONBLOCK) == 0;
}

}  // namespace

Adapter::Adapter(Progress& progress, const Verbs& verbs, Choice choice,
                 std::function<void()> on_port, Progress::RailThread* thread)
    : progress_(progress),
      verbs_(verbs),
      choice_(std::move(choice)),
      on_port_(std::move(on_port)),
      thread_(thread),
      completion_watch_([this] { on_completion_event(); }),
      device_watch_([this] { on_device_event(); }) {}

absl::StatusOr<std::shared_ptr<Adapter>> Adapter::open(Progress& progress, const Verbs& verbs,
                                                       const Choice& choice,
                                                       std::function<void()> on_port,
                                                       Progress::RailThread* thread) {
  std::shared_ptr<Adapter> adapter(
      new Adapter(progress, verbs, choice, std::move(on_port), thread));
  if (absl::Status status = adapter->set_up(); !status.ok()) return status;
  if (absl::Status status = adapter->watch(); !status.ok()) return status;
  return adapter;
}

absl::Status Adapter::set_up() {
  auto context = open_device(verbs_, choice_.device);
  if (!context.ok()) return context.status();
  context_ = *context;
  if (verbs_.query_device(context_, &attributes_) != 0)
    return failure("asking for its limits", choice_);
  domain_ = verbs_.alloc_pd(context_);
  if (domain_ == nullptr) return failure("making a protection domain", choice_);
  channel_ = verbs_.create_comp_channel(context_);
  if (channel_ == nullptr) return failure("making a completion channel", choice_);
  const int entries = std::min(kFirstEntries, attributes_.max_cqe);
  completions_ = verbs_.create_cq(context_, entries, nullptr, channel_);
  if (completions_ == nullptr) return failure("making a completion queue", choice_);
  entries_ = completions_->cqe;
  memory_ = std::make_unique<MemoryMap>(verbs_, domain_, choice_.device, PinnedLimit::of_process(),
                                        sink_access());
  HeldMemory::of_process().add(memory_.get());
  is_held_memory_told_ = true;
  return absl::OkStatus();
}

void Adapter::warn_of_fork() const {
  if (verbs_.is_fork_initialized() != IBV_FORK_DISABLED) return;
  log().warn(
      "{}: this kernel gives a child of fork() the pages that the device uses, so data that the "
      "process sends while a child lives may be wrong. Fork before the first operation, or not at "
      "all",
      choice_.device);
}

absl::Status Adapter::watch() {
  for (const int fd : {context_->cmd_fd, context_->async_fd, channel_->fd}) close_in_children(fd);
  warn_of_fork();
  if (!set_nonblocking(channel_->fd) || !set_nonblocking(context_->async_fd)) {
    return failure("setting up its events", choice_);
  }
  absl::Status status = progress_.add(channel_->fd, &completion_watch_, EPOLLIN, thread_);
  if (!status.ok()) return status;
  status = progress_.add(context_->async_fd, &device_watch_, EPOLLIN);
  if (!status.ok()) {
    progress_.remove(channel_->fd);
    return status;
  }
  is_watched_ = true;
  if (thread_ == nullptr) {
    progress_.add_poller(this);
  } else {
    arm();
  }
  return absl::OkStatus();
}

absl::Status Adapter::listen(const PortRange& ports) {
  if (!choice_.is_iwarp) return absl::OkStatus();
  auto connections = ConnectionManager::open(progress_,
                                             {.name = choice_.device,
                                              .index = ibv_get_device_index(context_->device),
                                              .address = choice_.gid.address()},
                                             ports);
  if (!connections.ok()) return connections.status();
  connections_ = *std::move(connections);
  return absl::OkStatus();
}

Adapter::~Adapter() {
  if (is_watched_) {
    if (thread_ == nullptr) progress_.remove_poller(this);
    progress_.remove(channel_->fd);
    progress_.remove(context_->async_fd);
  }
  if (channel_ != nullptr) {
    for (const int fd : {context_->cmd_fd, context_->async_fd, channel_->fd}) leave_in_children(fd);
  }
  if (is_held_memory_told_) HeldMemory::of_process().remove(memory_.get());
  memory_.reset();
  if (completions_ != nullptr) verbs_.destroy_cq(completions_);
  if (channel_ != nullptr) verbs_.destroy_comp_channel(channel_);
  if (domain_ != nullptr) verbs_.dealloc_pd(domain_);
  if (context_ != nullptr) verbs_.close_device(context_);
}

absl::StatusOr<uint32_t> Adapter::add(Client* client, int requests) {
  if (requests_ + requests > entries_) {
    const int wanted = std::min(2 * (requests_ + requests), attributes_.max_cqe);
    if (wanted < requests_ + requests) {
      return absl::ResourceExhaustedError(
          absl::StrCat(choice_.device, ": its completion queues have ", attributes_.max_cqe,
                       " entries, too few for another link"));
    }
    if (verbs_.resize_cq(completions_, wanted) != 0) {
      return failure("enlarging the completion queue", choice_);
    }
    entries_ = wanted;
  }
  requests_ += requests;
  const uint32_t serial = next_serial_++;
  clients_.emplace(serial, Entry{client, requests});
  return serial;
}

void Adapter::remove(uint32_t serial) {
  const auto entry = clients_.find(serial);
  if (entry == clients_.end()) return;
  requests_ -= entry->second.requests;
  clients_.erase(entry);
}

// Completions of a client that is gone are ignored: its queue pair was destroyed.
bool Adapter::poll() {
  // A completion may end the last link, which would end the adapter.
  const std::shared_ptr<Adapter> self = shared_from_this();
  std::array<ibv_wc, kBatch> done;
  int handled = 0;
  while (handled < kMostAtOnce) {
    const int count = verbs_.poll_cq(completions_, kBatch, done.data());
    if (count <= 0) break;
    handled += count;
    for (int i = 0; i < count; ++i) {
      const ibv_wc& it = done[static_cast<size_t>(i)];
      const auto entry = clients_.find(static_cast<uint32_t>(it.wr_id >> 32));
      if (entry != clients_.end()) {
        entry->second.client->on_completion(static_cast<uint32_t>(it.wr_id), it);
      }
    }
    if (count < kBatch) break;
  }
  return handled > 0;
}

// Handles no more than the queue can hold, since others may go on sending.
void Adapter::poll_all() {
  const std::shared_ptr<Adapter> self = shared_from_this();
  for (int handled = 0; handled < entries_ && poll(); handled += kMostAtOnce) {
  }
}

bool Adapter::arm() {
  const std::shared_ptr<Adapter> self = shared_from_this();
  verbs_.req_notify_cq(completions_, 0);
  // A completion that came before the queue was armed gives no event.
  return !poll();
}

void Adapter::on_completion_event() {
  const std::shared_ptr<Adapter> self = shared_from_this();
  ibv_cq* queue = nullptr;
  void* user = nullptr;
  unsigned events = 0;
  while (verbs_.get_cq_event(channel_, &queue, &user) == 0) ++events;
  if (events > 0) verbs_.ack_cq_events(completions_, events);
  if (thread_ == nullptr) {
    poll();
    return;
  }
  // The thread is told of the next completion only once none is left. Others get their turn
  // meanwhile.
  while (!arm()) {
    progress_.run_deferred();
    progress_.without_lock([] {});
  }
}

void Adapter::on_device_event() {
  const std::shared_ptr<Adapter> self = shared_from_this();
  ibv_async_event event{};
  bool is_news = false;
  while (verbs_.get_async_event(context_, &event) == 0) {
    verbs_.ack_async_event(&event);
    is_news = true;
    is_broken_ |= event.event_type == IBV_EVENT_DEVICE_FATAL;
    is_broken_ |= event.event_type == IBV_EVENT_CQ_ERR;
  }
  if (is_news && on_port_ != nullptr) on_port_();
}

Nanos Adapter::parting_deadline() {
  if (parting_deadline_ == 0) parting_deadline_ = now() + kParting;
  return parting_deadline_;
}

absl::Status Adapter::port_state() const {
  if (is_broken_) {
    return absl::NotFoundError(absl::StrCat("the device ", choice_.device, " has failed"));
  }
  ibv_port_attr port{};
  // Soft-iWARP answers for a port whose interface has been deleted, until this process lets it go.
  char name[IF_NAMESIZE];
  const bool has_interface =
      !choice_.is_iwarp ||
      if_indextoname(static_cast<unsigned>(choice_.gid.interface), name) != nullptr;
  if (!has_interface ||
      verbs_.query_port(context_, static_cast<uint8_t>(choice_.port.number), &port) != 0) {
    return absl::NotFoundError(absl::StrCat("the device ", choice_.device, " is gone"));
  }
  if (port.state != IBV_PORT_ACTIVE) {
    return absl::UnavailableError(
        absl::StrCat("port ", choice_.port.number, " of ", choice_.device, " is down"));
  }
  return absl::OkStatus();
}

uint8_t Adapter::reads_asked() const {
  return static_cast<uint8_t>(std::clamp(attributes_.max_qp_init_rd_atom, 1, 16));
}

uint8_t Adapter::reads_answered() const {
  return static_cast<uint8_t>(std::clamp(attributes_.max_qp_rd_atom, 1, 16));
}

}  // namespace nezha::rdma
