// SPDX-License-Identifier: Apache-2.0
// The network manager of a fabric of aggregation switches (Flare, section 4; SHARP's aggregation
// manager). It computes reduction trees, installs sessions on the switches, gives hosts their keys,
// rejects jobs that do not fit, and removes sessions that nobody uses any more. messages.h has its
// messages.
//
// Each rank of a job asks for a session. Once all have asked, the manager installs one on the best
// tree of switches that have room. If a switch refuses or dies meanwhile, the manager leaves it out
// and tries the next tree. Leases keep a session: hosts renew theirs with the manager, and the
// manager renews those on the switches. A manager that restarts finds the sessions on the switches,
// and takes them over when their hosts renew.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "flare_offload/manager/admission.h"
#include "flare_offload/manager/fabric.h"
#include "flare_offload/manager/groups.h"
#include "flare_offload/manager/tree.h"
#include "flare_offload/secure/refusal_limit.h"
#include "flare_offload/secure/secure_connection.h"
#include "flare_offload/wire/messages.h"
#include "transport/progress.h"

namespace nezha::flare {

struct ManagerOptions {
  Fabric fabric;
  int sessions = 64;              // the most of each switch
  Nanos lease = 10 * kSecond;     // the lease of a session that nobody renews
  Nanos patience = 30 * kSecond;  // the wait for ranks that are late to ask
};

// All methods are called under Progress's lock.
class Manager {
 public:
  Manager(Progress& progress, ManagerOptions options, const Secret& secret);
  ~Manager();
  Manager(const Manager&) = delete;
  Manager& operator=(const Manager&) = delete;

  // Listens for hosts. Connects to the switches, too, and keeps trying.
  absl::Status listen(const Address& address);

  // Returns a line of JSON about its switches and sessions.
  std::string statistics() const;

 private:
  using Request = message::Request;
  class Listener;

  struct Host {
    std::unique_ptr<SecureConnection> connection;
    Address from;
  };
  struct Member {
    Host* host = nullptr;  // null: it is not connected now
    bool has_joined = false;
    bool has_left = false;
    Nanos heard = 0;
    Address address;
    bool multicast = false;  // true if multicast may carry its results
  };
  enum class State { kGathering, kInstalling, kUp };
  // A job's request, and the session that it gets.
  struct Job {
    Request request;
    State state = State::kGathering;
    Nanos since = 0;
    std::vector<Member> members;  // indexed by rank
    uint32_t payload = 0;
    uint32_t window = 0;
    int streams = 0;
    bool reproducible = false;
    uint32_t session = 0;  // the first one
    uint16_t generation = 0;
    Tree tree;              // if the job was taken over, only its switches' numbers
    std::vector<Key> keys;  // indexed by node
    // The group to which each node sends results, indexed by node. If the job was taken over, these
    // are the groups that it had.
    std::vector<std::optional<Address>> groups;
    std::set<int> missing;                // switches that have not answered yet
    std::map<int, std::string> refusals;  // the switches that have refused, and why
  };
  struct Switch {
    std::unique_ptr<SecureConnection> connection;
    std::unique_ptr<Alarm> again;  // connects
    bool is_up = false;
    Nanos down_since = 0;
  };

  // Hosts
  void accept(net::Socket socket, const Address& from);
  void on_host_closed(Host* host, const absl::Status& why);
  void forget(Host* host);
  void on_host(Host& host, const std::string& text);
  void on_join(Host& host, const message::Join& join);
  void on_renew(Host& host, const message::Renew& renew);
  void on_leave(const message::Leave& leave);
  bool take_over(const message::Renew& renew);
  void reject(Job& job, const std::string& reason);
  void lose(const Request& request, const std::string& reason);
  void tell(const Job& job, const message::Message& message);

  // Switches
  void connect(int number);
  void on_switch_closed(int number, const absl::Status& why);
  void tell_of_silence(int number, const absl::Status& why, const std::string& text);
  void on_switch(int number, const std::string& text);
  void on_has(int number, const message::Has& has);
  void on_installed(int number, uint32_t session);
  void on_refused(int number, const message::Refused& refused);
  void on_expired(int number, const message::Expired& expired);
  void send(int number, const message::Message& message);

  // Sessions: sessions.cc
  void install(Job& job);
  void take_groups(Job& job);
  std::string spec(const Job& job, size_t node) const;
  void grant(Job& job);
  void try_another(Job& job, int number, std::string why);
  void remove_from_switches(Job& job);
  Job* job_of(uint32_t session);
  uint32_t free_session(int streams) const;
  void tick();

  Progress& progress_;
  const ManagerOptions options_;
  const Secret secret_;
  const Nanos started_ = now();
  Admission admission_;
  Groups groups_;
  std::vector<Switch> switches_;
  std::unique_ptr<Listener> listener_;
  std::map<Host*, std::unique_ptr<Host>> hosts_;
  std::vector<Host*> unproven_;  // those of hosts_ that have not shown the secret; oldest first
  RefusalLimit refusals_;        // limits what is logged of hosts
  RefusalLimit refusals_by_switches_;
  std::map<Request, std::unique_ptr<Job>> jobs_;
  Alarm tick_;
};

}  // namespace nezha::flare
