// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/transport/fake_fabric.h"

#include <gtest/gtest.h>
#include <net/if.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace nezha::testing {
namespace {

FakeFabric* fabric = nullptr;
ibv_device device{};

}  // namespace

FakeFabric& FakeFabric::current() {
  if (getpid() != fabric->process_) _exit(kTouched);
  return *fabric;
}

FakeFabric::FakeFabric() : process_(getpid()) {
  EXPECT_EQ(fabric, nullptr);
  fabric = this;
  gid.port_num = 1;
  gid.gid_type = IBV_GID_TYPE_ROCE_V2;
  gid.ndev_ifindex = if_nametoindex("lo");
  gid.gid = {{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 127, 0, 0, 1}};
  fill_device_verbs();
  fill_verbs();
  fill_queue_verbs();
  fill_pair_verbs();
}

FakeFabric::~FakeFabric() {
  EXPECT_TRUE(pairs_.empty());
  EXPECT_TRUE(regions_.empty());
  EXPECT_TRUE(queues_.empty());
  EXPECT_EQ(contexts(), 0u);
  fabric = nullptr;
}

rdma::Choice FakeFabric::choice() {
  rdma::Choice choice;
  choice.device = "fake0";
  choice.port.number = 1;
  choice.port.state = IBV_PORT_ACTIVE;
  choice.port.mtu = 1024;
  choice.via = "lo";
  return choice;
}

FakeFabric::Pair* FakeFabric::find(uint32_t number) {
  const auto entry = pairs_.find(number);
  return entry == pairs_.end() ? nullptr : entry->second.get();
}

// ---- What the device does ----------------------------------------------------------------------

void FakeFabric::complete(Queue& queue, ibv_wc completion) {
  EXPECT_LT(queue.done.size(), queue.entries) << "the completion queue is full";
  queue.done.push_back(completion);
  if (std::exchange(queue.is_armed, false)) {
    EXPECT_EQ(eventfd_write(queue.queue.channel->fd, 1), 0);
  }
}

void FakeFabric::complete(Pair& pair, uint64_t id, ibv_wc_status status, ibv_wc_opcode opcode,
                          uint32_t bytes) {
  ibv_wc completion{};
  completion.wr_id = id;
  completion.status = status;
  completion.opcode = opcode;
  completion.byte_len = bytes;
  completion.qp_num = pair.pair.qp_num;
  complete(*queues_.at(pair.pair.send_cq), completion);
}

// Fails the pair and flushes its remaining work.
void FakeFabric::fail(Pair& pair) {
  pair.state = IBV_QPS_ERR;
  for (const Send& send : pair.sends) {
    complete(pair, send.id, IBV_WC_WR_FLUSH_ERR, IBV_WC_SEND, 0);
  }
  for (const ibv_recv_wr& receive : pair.receives) {
    complete(pair, receive.wr_id, IBV_WC_WR_FLUSH_ERR, IBV_WC_RECV, 0);
  }
  pair.sends.clear();
  pair.receives.clear();
  pair.places.clear();
}

bool FakeFabric::may_read(uint64_t address, uint64_t bytes, uint32_t key) const {
  return std::any_of(regions_.begin(), regions_.end(), [&](const auto& entry) {
    const ibv_mr& it = *entry.first;
    const auto begin = reinterpret_cast<uintptr_t>(it.addr);
    return it.rkey == key && (entry.second->access & IBV_ACCESS_REMOTE_READ) != 0 &&
           address >= begin && address + bytes <= begin + it.length;
  });
}

bool FakeFabric::is_own(const ibv_sge& place, bool is_written) const {
  return std::any_of(regions_.begin(), regions_.end(), [&](const auto& entry) {
    const ibv_mr& it = *entry.first;
    const auto begin = reinterpret_cast<uintptr_t>(it.addr);
    const bool may = !is_written || (entry.second->access & IBV_ACCESS_LOCAL_WRITE) != 0;
    return may && it.lkey == place.lkey && place.addr >= begin &&
           place.addr + place.length <= begin + it.length;
  });
}

bool FakeFabric::step(uint32_t pick) {
  const std::lock_guard lock(pairs_mutex_);
  std::vector<Pair*> busy;
  for (auto& [number, pair] : pairs_) {
    if (pair->state == IBV_QPS_RTS && !pair->sends.empty()) busy.push_back(pair.get());
  }
  if (busy.empty()) return false;
  const uint32_t number = busy[pick % busy.size()]->pair.qp_num;
  const bool is_read = busy[pick % busy.size()]->sends.front().opcode == IBV_WR_RDMA_READ;
  if (is_read) on_read();
  if (find(number) == nullptr) return true;  // on_read has destroyed it
  Pair& pair = *find(number);
  const Send work = std::move(pair.sends.front());
  pair.sends.pop_front();
  if (!(is_read ? do_read(pair, work) : do_send(pair, work))) fail(pair);
  return true;
}

// Returns false if the pair must fail.
bool FakeFabric::do_send(Pair& pair, const Send& work) {
  Pair* peer = find(pair.peer);
  const bool is_there =
      peer != nullptr && !is_cut && (peer->state == IBV_QPS_RTR || peer->state == IBV_QPS_RTS);
  if (!is_there) {
    complete(pair, work.id, IBV_WC_RETRY_EXC_ERR, IBV_WC_SEND, 0);
    return false;
  }
  if (peer->receives.empty()) {
    ADD_FAILURE() << "no receive is posted for a message";
    complete(pair, work.id, IBV_WC_RNR_RETRY_EXC_ERR, IBV_WC_SEND, 0);
    return false;
  }
  const uint64_t id = peer->receives.front().wr_id;
  const ibv_sge into = peer->places.front();
  peer->receives.pop_front();
  peer->places.pop_front();
  EXPECT_LE(work.place.length, into.length);
  const void* from = work.is_inline ? static_cast<const void*>(work.inline_data.data())
                                    : reinterpret_cast<const void*>(work.place.addr);
  std::memcpy(reinterpret_cast<void*>(into.addr), from, work.place.length);
  complete(*peer, id, IBV_WC_SUCCESS, IBV_WC_RECV, work.place.length);
  complete(pair, work.id, IBV_WC_SUCCESS, IBV_WC_SEND, 0);
  return true;
}

bool FakeFabric::do_read(Pair& pair, const Send& work) {
  const Pair* peer = find(pair.peer);
  if (peer == nullptr || is_cut || peer->state == IBV_QPS_ERR) {
    complete(pair, work.id, IBV_WC_RETRY_EXC_ERR, IBV_WC_RDMA_READ, 0);
    return false;
  }
  if (!may_read(work.address, work.place.length, work.key)) {
    complete(pair, work.id, IBV_WC_REM_ACCESS_ERR, IBV_WC_RDMA_READ, 0);
    return false;
  }
  EXPECT_TRUE(is_own(work.place, true)) << "memory that is not registered any more";
  std::memcpy(reinterpret_cast<void*>(work.place.addr), reinterpret_cast<void*>(work.address),
              work.place.length);
  complete(pair, work.id, IBV_WC_SUCCESS, IBV_WC_RDMA_READ, work.place.length);
  return true;
}

size_t FakeFabric::pairs() const {
  const std::lock_guard lock(pairs_mutex_);
  return pairs_.size();
}

size_t FakeFabric::contexts() const {
  const std::lock_guard lock(mutex_);
  return contexts_.size();
}

std::vector<int> FakeFabric::descriptors() const {
  const std::lock_guard lock(mutex_);
  std::vector<int> all;
  for (const auto& [context, it] : contexts_) {
    all.push_back(context->cmd_fd);
    all.push_back(context->async_fd);
  }
  for (const auto& [queue, it] : queues_) all.push_back(queue->channel->fd);
  return all;
}

void FakeFabric::take_away(ibv_event_type event) {
  is_there_ = false;
  {
    const std::lock_guard lock(pairs_mutex_);
    for (auto& [number, pair] : pairs_) fail(*pair);
  }
  tell(event);
}

void FakeFabric::fail_pair(uint32_t number) {
  const std::lock_guard lock(pairs_mutex_);
  fail(*find(number));
}

void FakeFabric::tell(ibv_event_type event) {
  const std::lock_guard lock(mutex_);
  for (auto& [context, it] : contexts_) {
    it->events.push_back(event);
    EXPECT_EQ(eventfd_write(context->async_fd, 1), 0);
  }
}

// ---- The verbs ---------------------------------------------------------------------------------

void FakeFabric::fill_device_verbs() {
  verbs_.get_device_list = [](int* count) {
    ++current().looks;
    current().on_look();
    *count = current().is_there_ ? 1 : 0;
    return new ibv_device* [2] { *count == 1 ? &device : nullptr, nullptr };
  };
  verbs_.free_device_list = [](ibv_device** list) { delete[] list; };
  verbs_.get_device_name = [](ibv_device*) { return "fake0"; };
  verbs_.open_device = [](ibv_device* it) -> ibv_context* {
    if (!current().is_there_) {
      errno = ENODEV;
      return nullptr;
    }
    auto made = std::make_unique<Context>();
    made->context.device = it;
    made->context.cmd_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    made->context.async_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    ibv_context* const context = &made->context;
    const std::lock_guard lock(current().mutex_);
    current().contexts_.emplace(context, std::move(made));
    return context;
  };
  verbs_.close_device = [](ibv_context* context) {
    FakeFabric& it = current();
    const std::lock_guard lock(it.mutex_);
    close(context->cmd_fd);
    close(context->async_fd);
    EXPECT_EQ(it.contexts_.erase(context), 1u);
    return 0;
  };
  verbs_.query_device = [](ibv_context*, ibv_device_attr* attributes) {
    *attributes = {};
    attributes->phys_port_cnt = 1;
    attributes->max_cqe = 1 << 15;
    attributes->max_qp_rd_atom = 4;
    attributes->max_qp_init_rd_atom = 4;
    return 0;
  };
  verbs_.query_port = [](ibv_context*, uint8_t, ibv_port_attr* attributes) {
    if (!current().is_there_) return ENODEV;
    *attributes = {};
    attributes->state = current().port_state;
    attributes->link_layer = current().link_layer;
    attributes->active_mtu = IBV_MTU_1024;
    attributes->gid_tbl_len = 1;
    return 0;
  };
  verbs_.query_gid_table = [](ibv_context*, ibv_gid_entry* entries, size_t) -> ssize_t {
    *entries = current().gid;
    return 1;
  };
  verbs_.is_fork_initialized = [] { return IBV_FORK_UNNEEDED; };
  verbs_.get_async_event = [](ibv_context* context, ibv_async_event* event) {
    const std::lock_guard lock(current().mutex_);
    auto& events = current().contexts_.at(context)->events;
    eventfd_t count = 0;
    if (eventfd_read(context->async_fd, &count) != 0) return -1;
    *event = {};
    event->event_type = events.front();
    events.pop_front();
    if (!events.empty()) return eventfd_write(context->async_fd, 1);
    return 0;
  };
  verbs_.ack_async_event = [](ibv_async_event*) {};
}

void FakeFabric::fill_verbs() {
  verbs_.alloc_pd = [](ibv_context*) { return new ibv_pd{}; };
  verbs_.dealloc_pd = [](ibv_pd* domain) {
    current();
    delete domain;
    return 0;
  };
  verbs_.reg_mr = [](ibv_pd* domain, void* memory, size_t bytes, int access) -> ibv_mr* {
    FakeFabric& it = current();
    if (it.registered_ + bytes > it.limit) {
      errno = ENOMEM;
      return nullptr;
    }
    if (it.refuses_writes && (access & IBV_ACCESS_LOCAL_WRITE) != 0) {
      errno = EFAULT;
      return nullptr;
    }
    it.registered_ += bytes;
    auto made = std::make_unique<Region>();
    made->access = access;
    made->region.pd = domain;
    made->region.addr = memory;
    made->region.length = bytes;
    made->region.lkey = it.next_key_++;
    made->region.rkey = it.next_key_++;
    ibv_mr* const region = &made->region;
    it.regions_.emplace(region, std::move(made));
    return region;
  };
  verbs_.dereg_mr = [](ibv_mr* region) {
    current().registered_ -= region->length;
    EXPECT_EQ(current().regions_.erase(region), 1u);
    return 0;
  };
}

void FakeFabric::fill_queue_verbs() {
  verbs_.create_comp_channel = [](ibv_context* context) {
    auto* const channel = new ibv_comp_channel{};
    channel->context = context;
    channel->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    return channel;
  };
  verbs_.destroy_comp_channel = [](ibv_comp_channel* channel) {
    current();
    close(channel->fd);
    delete channel;
    return 0;
  };
  verbs_.create_cq = [](ibv_context*, int entries, void*, ibv_comp_channel* channel) {
    auto made = std::make_unique<Queue>();
    made->queue.channel = channel;
    made->queue.cqe = entries;
    made->entries = static_cast<size_t>(entries);
    ibv_cq* const queue = &made->queue;
    current().queues_.emplace(queue, std::move(made));
    return queue;
  };
  verbs_.resize_cq = [](ibv_cq* queue, int entries) {
    current().queues_.at(queue)->entries = static_cast<size_t>(entries);
    return 0;
  };
  verbs_.destroy_cq = [](ibv_cq* queue) {
    current().queues_.erase(queue);
    return 0;
  };
  verbs_.poll_cq = [](ibv_cq* queue, int count, ibv_wc* completions) {
    auto& done = current().queues_.at(queue)->done;
    const int taken = std::min(count, static_cast<int>(done.size()));
    std::copy_n(done.begin(), taken, completions);
    done.erase(done.begin(), done.begin() + taken);
    return taken;
  };
  verbs_.req_notify_cq = [](ibv_cq* queue, int) {
    current().queues_.at(queue)->is_armed = true;
    return 0;
  };
  verbs_.get_cq_event = [](ibv_comp_channel* channel, ibv_cq** queue, void**) {
    eventfd_t count = 0;
    for (auto& [key, value] : current().queues_) {
      if (value->queue.channel == channel) *queue = key;
    }
    return eventfd_read(channel->fd, &count);
  };
  verbs_.ack_cq_events = [](ibv_cq*, unsigned) {};
}

void FakeFabric::fill_pair_verbs() {
  verbs_.create_qp = [](ibv_pd*, ibv_qp_init_attr* wanted) {
    FakeFabric& it = current();
    auto made = std::make_unique<Pair>();
    made->pair.qp_num = it.next_pair_++;
    made->pair.send_cq = wanted->send_cq;
    made->pair.recv_cq = wanted->recv_cq;
    made->depth = wanted->cap.max_send_wr;
    ibv_qp* const pair = &made->pair;
    const std::lock_guard lock(it.pairs_mutex_);
    it.pairs_.emplace(pair->qp_num, std::move(made));
    return pair;
  };
  verbs_.modify_qp = [](ibv_qp* qp, ibv_qp_attr* attributes, int mask) {
    const bool is_connected = (mask & IBV_QP_DEST_QPN) != 0;
    if (const int error = is_connected ? current().on_connect(qp->qp_num) : 0; error != 0) {
      return error;
    }
    const std::lock_guard lock(current().pairs_mutex_);
    Pair& pair = *current().find(qp->qp_num);
    if ((mask & IBV_QP_STATE) != 0) pair.state = attributes->qp_state;
    if ((mask & IBV_QP_DEST_QPN) != 0) pair.peer = attributes->dest_qp_num;
    if ((mask & IBV_QP_MAX_QP_RD_ATOMIC) != 0) pair.reads_allowed = attributes->max_rd_atomic;
    return 0;
  };
  verbs_.destroy_qp = [](ibv_qp* qp) {
    const std::lock_guard lock(current().pairs_mutex_);
    current().pairs_.erase(qp->qp_num);
    return 0;
  };
  verbs_.post_send = [](ibv_qp* qp, ibv_send_wr* work, ibv_send_wr**) {
    FakeFabric& it = current();
    const std::lock_guard lock(it.pairs_mutex_);
    Pair& pair = *it.find(qp->qp_num);
    if (pair.sends.size() == pair.depth) return ENOMEM;
    const bool is_read = work->opcode == IBV_WR_RDMA_READ;
    const auto reads = std::count_if(pair.sends.begin(), pair.sends.end(), [](const Send& send) {
      return send.opcode == IBV_WR_RDMA_READ;
    });
    EXPECT_TRUE(!is_read || reads < pair.reads_allowed);
    Send send{work->wr_id,
              work->opcode,
              {},
              (work->send_flags & IBV_SEND_INLINE) != 0,
              *work->sg_list,
              work->wr.rdma.remote_addr,
              work->wr.rdma.rkey};
    if (send.is_inline) {
      const auto* from = reinterpret_cast<const std::byte*>(send.place.addr);
      send.inline_data.assign(from, from + send.place.length);
    } else {
      EXPECT_TRUE(it.is_own(send.place, is_read)) << "memory that is not registered";
    }
    pair.sends.push_back(std::move(send));
    return 0;
  };
  verbs_.post_recv = [](ibv_qp* qp, ibv_recv_wr* work, ibv_recv_wr**) {
    FakeFabric& it = current();
    const std::lock_guard lock(it.pairs_mutex_);
    Pair& pair = *it.find(qp->qp_num);
    EXPECT_TRUE(it.is_own(*work->sg_list, true));
    pair.receives.push_back(*work);
    pair.places.push_back(*work->sg_list);
    return 0;
  };
}

}  // namespace nezha::testing
