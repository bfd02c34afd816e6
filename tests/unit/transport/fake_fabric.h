// SPDX-License-Identifier: Apache-2.0
// RDMA in memory: verbs that move bytes between the queue pairs of this process when a test calls
// step(). It follows the rules of a device: work completes in order, a SEND needs a posted receive,
// a READ needs a registered key, and a queue pair does nothing after an error. Call it from one
// thread or under a lock; but other threads may at any time open, query and close the device and
// connect queue pairs.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "transport/rdma/hca.h"
#include "transport/rdma/verbs.h"

namespace nezha::testing {

class FakeFabric {
 public:
  FakeFabric();
  ~FakeFabric();
  FakeFabric(const FakeFabric&) = delete;
  FakeFabric& operator=(const FakeFabric&) = delete;

  static constexpr int kTouched = 99;

  // Only one fabric may exist at a time, because C functions have no object.
  const rdma::Verbs& verbs() const { return verbs_; }
  // The choice that makes an Adapter open this device.
  static rdma::Choice choice();

  // Carries out the oldest work request of a queue pair; `pick` chooses the pair. Returns false if
  // there is none.
  bool step(uint32_t pick = 0);
  void run() {
    while (step()) {
    }
  }
  size_t pairs() const;
  size_t regions() const { return regions_.size(); }
  size_t contexts() const;               // how often the device is open
  std::vector<int> descriptors() const;  // open ones of the device

  // Removes the device. Its pending work fails, and it cannot be opened again. Each user that has
  // it open receives this event and must close it.
  void take_away(ibv_event_type event);
  void bring_back() { is_there_ = true; }
  // Fails the work of the pair, which then does nothing more.
  void fail_pair(uint32_t number);
  // Sends the event to everybody who has the device open.
  void tell(ibv_event_type event);

  std::atomic<ibv_port_state> port_state = IBV_PORT_ACTIVE;
  std::atomic<int> looks = 0;  // how often the list of devices was read
  std::function<void()> on_look = [] {};
  uint8_t link_layer = IBV_LINK_LAYER_ETHERNET;
  ibv_gid_entry gid{};                    // the port's; 127.0.0.1 at first
  bool is_cut = false;                    // sends are never confirmed, so their retries run out
  uint64_t limit = UINT64_MAX;            // of registered bytes
  bool refuses_writes = false;            // for memory that is registered from then on
  std::function<void()> on_read = [] {};  // before a READ is done
  // Called before a queue pair is connected; returns an error number, or 0.
  std::function<int(uint32_t number)> on_connect = [](uint32_t) { return 0; };

 private:
  struct Send {
    uint64_t id;
    ibv_wr_opcode opcode;
    std::vector<std::byte> inline_data;
    bool is_inline;
    ibv_sge place;
    uint64_t address;
    uint32_t key;
  };
  struct Pair {
    ibv_qp pair{};
    ibv_qp_state state = IBV_QPS_RESET;
    uint32_t peer = 0;
    uint32_t depth = 0;
    int reads_allowed = 0;
    std::deque<Send> sends;
    std::deque<ibv_recv_wr> receives;
    std::deque<ibv_sge> places;  // where receives write
  };
  struct Queue {
    ibv_cq queue{};
    std::deque<ibv_wc> done;
    size_t entries = 0;
    bool is_armed = false;
  };

  struct Context {
    ibv_context context{};
    std::deque<ibv_event_type> events;
  };

  // If a child of fork() uses what its parent made, the child ends at once with kTouched.
  static FakeFabric& current();
  void complete(Queue& queue, ibv_wc completion);
  void complete(Pair& pair, uint64_t id, ibv_wc_status status, ibv_wc_opcode opcode,
                uint32_t bytes);
  void fail(Pair& pair);
  Pair* find(uint32_t number);
  bool may_read(uint64_t address, uint64_t bytes, uint32_t key) const;
  bool is_own(const ibv_sge& place, bool is_written) const;
  bool do_send(Pair& pair, const Send& work);
  bool do_read(Pair& pair, const Send& work);
  void fill_device_verbs();
  void fill_verbs();
  void fill_queue_verbs();
  void fill_pair_verbs();

  const pid_t process_;
  rdma::Verbs verbs_{};
  std::atomic<bool> is_there_ = true;
  mutable std::mutex mutex_;  // of the contexts
  std::map<ibv_context*, std::unique_ptr<Context>> contexts_;
  mutable std::recursive_mutex pairs_mutex_;
  std::map<uint32_t, std::unique_ptr<Pair>> pairs_;
  std::map<ibv_cq*, std::unique_ptr<Queue>> queues_;
  struct Region {
    ibv_mr region{};
    int access = 0;
  };
  std::map<ibv_mr*, std::unique_ptr<Region>> regions_;
  uint64_t registered_ = 0;  // bytes
  uint32_t next_pair_ = 1;
  uint32_t next_key_ = 1;
};

}  // namespace nezha::testing
