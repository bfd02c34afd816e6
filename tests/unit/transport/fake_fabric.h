// SPDX-License-Identifier: Apache-2.0
// RDMA in memory: verbs that move bytes between the queue pairs of this process when a test says
// so, with a device's rules: work completes in order, a SEND needs a posted receive, a READ needs a
// key that is registered, and after an error a pair does nothing more. For one thread, or under a
// lock; other threads may open the device meanwhile, ask it and close it, and connect queue pairs.
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

  // One fabric lives at a time, as a function of C has no object.
  const rdma::Verbs& verbs() const { return verbs_; }
  // What an Adapter opens.
  static rdma::Choice choice();

  // Does the oldest work of a pair that has any; false: there is none. `pick` chooses among pairs.
  bool step(uint32_t pick = 0);
  void run() {
    while (step()) {
    }
  }
  size_t pairs() const;
  size_t regions() const { return regions_.size(); }
  size_t contexts() const;               // the times that the device is open
  std::vector<int> descriptors() const;  // of the device, that are open

  // The device is taken away: all that it had under way fails, and it can be opened no more. Who
  // has it open is told by this event, and is to close it.
  void take_away(ibv_event_type event);
  void bring_back() { is_there_ = true; }
  // Its work fails, and it does nothing more.
  void fail_pair(uint32_t number);
  // Those who have the device open are told.
  void tell(ibv_event_type event);

  std::atomic<ibv_port_state> port_state = IBV_PORT_ACTIVE;
  std::atomic<int> looks = 0;  // at the list of devices
  std::function<void()> on_look = [] {};
  uint8_t link_layer = IBV_LINK_LAYER_ETHERNET;
  ibv_gid_entry gid{};                    // the port's; 127.0.0.1 at first
  bool is_cut = false;                    // what is sent is never confirmed: its retries run out
  uint64_t limit = UINT64_MAX;            // of registered bytes
  bool refuses_writes = false;            // to memory that is registered from then on
  std::function<void()> on_read = [] {};  // before a READ is done
  // When a queue pair is to be connected; an error number, or 0.
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
    std::deque<ibv_sge> places;  // of receives
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

  // A child of fork() that uses what its parent made ends at once, with kTouched.
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
