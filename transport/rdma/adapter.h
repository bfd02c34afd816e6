// SPDX-License-Identifier: Apache-2.0
// An RDMA device that this process has opened, for the links of one rail: its protection domain,
// the completion queue that they share, and the memory that is registered with it.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <unordered_map>

#include "absl/status/statusor.h"
#include "transport/progress.h"
#include "transport/rdma/connection_manager.h"
#include "transport/rdma/hca.h"
#include "transport/rdma/memory_map.h"
#include "transport/rdma/verbs.h"

namespace nezha::rdma {

// Is told of the completions of a queue pair, under Progress's lock.
class Client {
 public:
  // `id`: the low half of the work request's.
  virtual void on_completion(uint32_t id, const ibv_wc& completion) = 0;

 protected:
  ~Client() = default;
};

// Links share the adapter, and the last of them closes the device. Until then a command that takes
// the device away, such as `ip link delete`, may block. All calls are made under Progress's lock.
class Adapter final : Poller, public std::enable_shared_from_this<Adapter> {
 public:
  // `on_port` is called when the port, or the device, may have changed. The rail's `thread` handles
  // completions. If that is null, the driving thread does, and polls for them.
  static absl::StatusOr<std::shared_ptr<Adapter>> open(Progress& progress, const Verbs& verbs,
                                                       const Choice& choice,
                                                       std::function<void()> on_port,
                                                       Progress::RailThread* thread = nullptr);
  ~Adapter() override;
  // Listens for the connections of an iWARP device; does nothing for others. Callers call this
  // once, before any link.
  absl::Status listen(const PortRange& ports);
  Adapter(const Adapter&) = delete;
  Adapter& operator=(const Adapter&) = delete;

  // Adds a client that has at most so many work requests under way. Returns the high half of their
  // ids, which is not 0 and never comes again.
  absl::StatusOr<uint32_t> add(Client* client, int requests);
  void remove(uint32_t serial);

  // Handles what has completed. Returns whether there was anything.
  bool poll() override;
  // Handles all that has completed by now.
  void poll_all();

  // An error says why the port carries nothing; the error is kNotFound if the device is gone, or of
  // no use until it is opened anew.
  absl::Status port_state() const;
  // Returns until when links that shut down wait for what they have sent. All of them share this
  // time.
  Nanos parting_deadline();
  // From here on `on_port` is not called.
  void forget_owner() { on_port_ = nullptr; }

  const Verbs& verbs() const { return verbs_; }
  const Choice& choice() const { return choice_; }
  ibv_pd* domain() const { return domain_; }
  ibv_cq* completions() const { return completions_; }
  MemoryMap& memory() { return *memory_; }
  ConnectionManager* connections() { return connections_.get(); }  // null: it needs none
  // Returns the access that memory must allow if a READ writes to it. With iWARP the peer's device
  // itself writes.
  int sink_access() const {
    return IBV_ACCESS_LOCAL_WRITE | (choice_.is_iwarp ? IBV_ACCESS_REMOTE_WRITE : 0);
  }
  // These return how many RDMA READs a queue pair may have under way, as the asking and as the
  // answering side.
  uint8_t reads_asked() const;
  uint8_t reads_answered() const;

 private:
  // Calls a function when its descriptor has events.
  class Watch final : public EventHandler {
   public:
    explicit Watch(std::function<void()> call) : call_(std::move(call)) {}
    void on_events(uint32_t) override { call_(); }

   private:
    std::function<void()> call_;
  };

  Adapter(Progress& progress, const Verbs& verbs, Choice choice, std::function<void()> on_port,
          Progress::RailThread* thread);
  absl::Status set_up();
  absl::Status watch();
  void warn_of_fork() const;
  bool arm() override;
  void on_completion_event();
  void on_device_event();

  static constexpr int kFirstEntries = 4096;  // the completion queue's: for 60 links
  static constexpr Nanos kParting = 50 * kMillisecond;
  static constexpr int kBatch = 16;        // completions
  static constexpr int kMostAtOnce = 256;  // completions of a turn, so that others get their turns

  Progress& progress_;
  const Verbs& verbs_;
  const Choice choice_;
  std::function<void()> on_port_;
  Progress::RailThread* const thread_;
  ibv_context* context_ = nullptr;
  ibv_device_attr attributes_{};
  ibv_pd* domain_ = nullptr;
  ibv_comp_channel* channel_ = nullptr;
  ibv_cq* completions_ = nullptr;
  std::unique_ptr<MemoryMap> memory_;
  std::unique_ptr<ConnectionManager> connections_;
  Watch completion_watch_;
  Watch device_watch_;
  bool is_watched_ = false;
  bool is_held_memory_told_ = false;
  bool is_broken_ = false;  // the device has reported it
  Nanos parting_deadline_ = 0;
  int entries_ = 0;   // the completion queue's
  int requests_ = 0;  // work requests that may complete
  struct Entry {
    Client* client;
    int requests;
  };
  std::unordered_map<uint32_t, Entry> clients_;  // keyed by serial
  uint32_t next_serial_ = 1;
};

}  // namespace nezha::rdma
