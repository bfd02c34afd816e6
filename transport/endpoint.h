// SPDX-License-Identifier: Apache-2.0
// The endpoint: what a process is on its networks. It has the process's devices, and its channels
// to other processes, which all contexts of the process share.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/buffer_pool.h"
#include "common/hash_map.h"
#include "common/unique_id.h"
#include "transport/channel.h"
#include "transport/device.h"
#include "transport/progress.h"

namespace nezha {

// Is told what other ranks say of a context. The context implements it. Its functions are called
// under Progress's lock.
class JobListener {
 public:
  virtual void on_abort(const wire::Abort& abort) = 0;
  virtual void on_roll_call(const wire::RollCall& call) = 0;
  // A process of the context has died, or this one cannot go on.
  virtual void on_failed(const absl::Status& why) = 0;

 protected:
  ~JobListener() = default;
};

// The peers that a rail does not lead to; see RailStats.
struct RailOutage {
  uint64_t peers = 0;
  Nanos since = 0;  // when the peer that has been without a link for longest came to be so
  std::string why;  // why that peer has no link
};

class Endpoint final : ChannelOwner, Acceptor {
 public:
  // Opens a device for the rail. The registry of rail kinds (context/rails.h) makes such factories.
  using DeviceFactory =
      std::function<absl::StatusOr<std::unique_ptr<Device>>(Progress&, Acceptor&, Rail)>;

  static absl::StatusOr<std::shared_ptr<Endpoint>> create();
  // Hands over what peers still need, as say_goodbye() does, and closes all.
  ~Endpoint();
  Endpoint(const Endpoint&) = delete;
  Endpoint& operator=(const Endpoint&) = delete;

  // Hands over what peers still need, within kLinger, and tells them that this process leaves all
  // contexts. Callers do not hold Progress's lock.
  void say_goodbye();

  // Returns the process's Progress, which is thread-safe.
  Progress& progress() override { return *progress_; }
  BufferPool& pool() override { return pool_; }
  const UniqueId& process() const override { return process_; }

  // All that follow are called under Progress's lock.

  // Returns the device that `uri` names, opened if it is not open yet.
  absl::StatusOr<Rail> open_device(const std::string& uri, const DeviceFactory& make);
  Device* device(Rail rail) override;
  // Sets the most threads of the process that handle events of rails that name no cores. The
  // context that called this last decides. With 0, the callers that wait do everything. With a
  // single rail they do so in any case, since a thread would do no more than they can. So many
  // `ranks` of this machine, including this one, share the cores.
  void set_spare_threads(int threads, int ranks = 1);
  RailOutage outage(Rail rail) const;
  // Returns the number of peers to which the rail has a lossy link.
  uint64_t lossy_peers(Rail rail) const;
  RailMask rails() const override { return rail_bit(static_cast<Rail>(devices_.size())) - 1; }
  // Returns the channel to a process, which is made if there is none.
  Channel& channel(const UniqueId& peer);
  // Until `leave`, connections that name this job are accepted, and what peers say of it is
  // reported. Returns AlreadyExists if the job has a listener: a channel connects processes, so it
  // cannot tell which of two ranks in one process something is for.
  absl::Status join(const UniqueId& job, JobListener* listener);
  // Does nothing unless this listener has joined.
  void leave(const UniqueId& job, const JobListener* listener);
  // Tells all peers that are connected and in the context, and those that connect later.
  void broadcast_abort(const wire::Abort& abort);
  // Something has thrown, for whichever context: all contexts break, and their ranks are told. If
  // nothing is certain (not `is_known`), no channel is of use any more; a process that has
  // destroyed its contexts begins anew.
  void on_exception(const absl::Status& what, bool is_known);
  // No channel is of use any more, and no link reads or writes anybody's memory. Nobody is told.
  void stop(const absl::Status& why) noexcept;
  // Tells all peers that are connected and in the context.
  void broadcast_roll_call(const wire::RollCall& call);

 private:
  explicit Endpoint(std::unique_ptr<Progress> progress);

  Membership membership(const UniqueId& job) const override;
  void on_abort(const wire::Abort& abort) override;
  void on_roll_call(const wire::RollCall& call) override;
  void on_peer_gone(const UniqueId& job, const absl::Status& why) override;
  void on_suspicion(Rail rail) override;
  const std::deque<wire::Abort>& aborts() const override { return aborts_; }
  wire::Welcome on_hello(Rail rail, const wire::Hello& hello) override;
  void on_accepted(Rail rail, const wire::Hello& hello, std::unique_ptr<Link> link) override;
  void on_carrier(Rail rail, bool up, absl::string_view why) override;
  void drain(Progress::Guard& guard);
  void limit_threads();

  static constexpr Nanos kLinger = kSecond;
  static constexpr size_t kMaxAborts = 64;
  static constexpr size_t kMaxLeft = 1024;
  static constexpr size_t kMaxChannels = 1 << 16;

  UniqueId process_ = UniqueId::random();
  BufferPool pool_;  // outlives the channels, whose messages hold buffers
  std::unique_ptr<Progress> progress_;
  std::vector<std::unique_ptr<Device>> devices_;  // indexed by rail
  std::map<std::string, Rail> rails_by_uri_;
  int spare_threads_ = 0;
  int ranks_here_ = 1;
  HashMap<UniqueId, JobListener*> jobs_;
  std::deque<UniqueId> left_;       // the contexts that were closed here lately
  std::deque<wire::Abort> aborts_;  // aborts of the contexts that broke lately
  HashMap<UniqueId, std::unique_ptr<Channel>> channels_;
};

}  // namespace nezha
