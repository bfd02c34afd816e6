// SPDX-License-Identifier: Apache-2.0
#include "flare_offload/manager/manager.h"

#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/host.h"
#include "common/log.h"

namespace nezha::flare {
namespace {

constexpr Nanos kReconnect = 500 * kMillisecond;
constexpr size_t kMaxHosts = 1 << 14;  // connections
// Connections whose peers have not shown yet that they have the secret, for which they have some
// seconds. Beyond this number the oldest is closed. So even many peers without the secret do not
// keep out a host, which takes no longer than its path's round trips.
constexpr size_t kMaxUnproven = 256;
// The pause in accepting connections when the process has no descriptors left.
constexpr Nanos kPause = 200 * kMillisecond;
constexpr size_t kMaxJobs = 1 << 12;

}  // namespace

class Manager::Listener final : EventHandler {
 public:
  Listener(Manager& manager, net::Socket socket)
      : manager_(manager),
        socket_(std::move(socket)),
        resume_(manager.progress_, [this] { manager_.progress_.modify(socket_.fd(), EPOLLIN); }) {}
  ~Listener() override { manager_.progress_.remove(socket_.fd()); }
  absl::Status start() { return manager_.progress_.add(socket_.fd(), this, EPOLLIN); }

 private:
  void on_events(uint32_t /*epoll_events*/) override {
    for (;;) {
      Address from;
      socklen_t length = sizeof from.storage;
      net::Socket accepted(
          accept4(socket_.fd(), from.sockaddr_ptr(), &length, SOCK_NONBLOCK | SOCK_CLOEXEC));
      if (accepted.fd() >= 0) {
        manager_.accept(std::move(accepted), from);
      } else if (errno != EINTR && errno != ECONNABORTED) {
        const bool waits = errno != EAGAIN;  // that peer would wake this up again and again
        if (waits) pause();
        return;
      }
    }
  }
  void pause() {
    log().warn("nezha-manager: accepting a connection failed, so it accepts none for {} ms: {}",
               kPause / kMillisecond, strerror(errno));
    manager_.progress_.modify(socket_.fd(), 0);
    resume_.start(now() + kPause);
  }

  Manager& manager_;
  net::Socket socket_;
  Alarm resume_;
};

Manager::Manager(Progress& progress, ManagerOptions options, const Secret& secret)
    : progress_(progress),
      options_(std::move(options)),
      secret_(secret),
      admission_(options_.fabric, options_.sessions),
      groups_(options_.fabric.groups),
      switches_(options_.fabric.switches.size()),
      tick_(progress, [this] { tick(); }) {}

Manager::~Manager() = default;

absl::Status Manager::listen(const Address& address) {
  absl::StatusOr<net::Socket> socket = listen_at(address);
  if (!socket.ok()) return socket.status();
  listener_ = std::make_unique<Listener>(*this, *std::move(socket));
  for (int number = 0; number < static_cast<int>(switches_.size()); ++number) {
    switches_[static_cast<size_t>(number)].again =
        std::make_unique<Alarm>(progress_, [this, number] { connect(number); });
    connect(number);
  }
  tick();
  return listener_->start();
}

std::string Manager::statistics() const {
  std::vector<std::string> switches;
  for (size_t i = 0; i < switches_.size(); ++i) {
    switches.push_back(absl::StrCat("{\"name\": \"", options_.fabric.switches[i].name,
                                    "\", \"up\": ", switches_[i].is_up ? "true" : "false", "}"));
  }
  std::vector<std::string> jobs;
  for (const auto& [request, job] : jobs_) {
    std::vector<std::string> names;
    for (const TreeNode& node : job->tree) {
      const auto number = static_cast<size_t>(node.number);
      names.push_back(absl::StrCat("\"", options_.fabric.switches[number].name, "\""));
    }
    jobs.push_back(absl::StrCat(
        "{\"job\": \"", request.job.str(), "\", \"attempt\": ", request.attempt, ", \"up\": ",
        job->state == State::kUp ? "true" : "false", ", \"ranks\": ", job->members.size(),
        ", \"session\": ", job->session, ", \"tree\": [", absl::StrJoin(names, ", "), "]}"));
  }
  return absl::StrCat("{\"switches\": [", absl::StrJoin(switches, ", "), "], \"jobs\": [",
                      absl::StrJoin(jobs, ", "), "]}");
}

// ---- Hosts -------------------------------------------------------------------------------------

void Manager::accept(net::Socket socket, const Address& from) {
  if (hosts_.size() >= kMaxHosts) return;
  if (unproven_.size() >= kMaxUnproven) forget(unproven_.front());
  auto host = std::make_unique<Host>();
  Host* const it = host.get();
  it->from = from;
  hosts_[it] = std::move(host);
  unproven_.push_back(it);
  it->connection = std::make_unique<SecureConnection>(
      progress_, std::move(socket), SecureStream::Service::kManager, secret_,
      SecureConnection::Callbacks{
          .on_ready = [this, it] { std::erase(unproven_, it); },
          .on_message = [this, it](const std::string& text) { on_host(*it, text); },
          .on_closed = [this, it](const absl::Status& why) { on_host_closed(it, why); }});
}

void Manager::on_host_closed(Host* host, const absl::Status& why) {
  if (absl::IsUnauthenticated(why)) {
    // The limit is by address, and not by the reason, which has the name that the client gives
    // itself.
    const auto untold = refusals_.tell_of(host->from.host(), now());
    if (untold) {
      log().warn(
          "nezha-manager: the connection from {} is refused: {}; the ranks' files of "
          "NEZHA_FLARE_SECRET must hold the same secret as this manager's of --secret{}",
          host->from.str(), std::string(why.message()), and_others(*untold));
    }
  }
  forget(host);
}

// The host's leases run on: it may come back.
void Manager::forget(Host* host) {
  for (auto& [request, job] : jobs_) {
    for (Member& member : job->members) {
      if (member.host == host) member.host = nullptr;
    }
  }
  std::erase(unproven_, host);
  hosts_.erase(host);
}

void Manager::on_host(Host& host, const std::string& text) {
  const absl::StatusOr<message::Message> parsed = message::parse(text);
  if (!parsed.ok()) {
    log().warn("nezha-manager: a host sent {}", std::string(parsed.status().message()));
  } else if (const auto* join = std::get_if<message::Join>(&*parsed)) {
    on_join(host, *join);
  } else if (const auto* renew = std::get_if<message::Renew>(&*parsed)) {
    on_renew(host, *renew);
  } else if (const auto* leave = std::get_if<message::Leave>(&*parsed)) {
    on_leave(*leave);
  }
}

void Manager::on_join(Host& host, const message::Join& join) {
  const auto refuse = [&](absl::string_view why) {
    host.connection->send(message::encode(message::Rejected{join.request, std::string(why)}));
  };
  // The job's earlier sessions are over for all of its ranks.
  for (auto it = jobs_.begin(); it != jobs_.end();) {
    const auto earlier = it++;
    const bool is_older =
        earlier->first.job == join.request.job && earlier->first.attempt < join.request.attempt;
    if (is_older) lose(earlier->first, "its ranks ask for another session");
  }
  const auto found = jobs_.find(join.request);
  if (found == jobs_.end() && jobs_.size() >= kMaxJobs) {
    return refuse("the manager has too many jobs");
  }
  std::unique_ptr<Job>& job = found == jobs_.end() ? jobs_[join.request] : found->second;
  if (job == nullptr) {
    job = std::make_unique<Job>();
    job->request = join.request;
    job->since = now();
    job->members.resize(static_cast<size_t>(join.size));
    job->payload = join.payload;
    job->window = join.window;
    job->streams = join.streams;
    job->reproducible = join.reproducible;
  }
  if (job->state != State::kGathering) return refuse("the session is installed already");
  const bool is_same = job->members.size() == static_cast<size_t>(join.size) &&
                       job->streams == join.streams && job->reproducible == join.reproducible;
  if (!is_same) {
    const std::string why =
        absl::StrCat("rank ", join.rank, " asks for another session than others");
    refuse(why);  // which reject() does not tell: it is no member yet
    return reject(*job, why);
  }
  job->payload = std::min(job->payload, join.payload / 8 * 8);
  job->window = std::min(job->window, join.window);
  log().debug("nezha-manager: {}: rank {} of {} at {}", name_of(join.request), join.rank, join.size,
              join.address.str());
  Member& member = job->members[static_cast<size_t>(join.rank)];
  member = {.host = &host,
            .has_joined = true,
            .heard = now(),
            .address = join.address,
            .multicast = join.multicast};
  const bool is_complete = std::all_of(job->members.begin(), job->members.end(),
                                       [](const Member& it) { return it.has_joined; });
  if (is_complete) install(*job);
}

void Manager::on_renew(Host& host, const message::Renew& renew) {
  auto found = jobs_.find(renew.request);
  if (found == jobs_.end()) {
    // Until all switches have answered, the session may be on others, too.
    const bool all_up =
        std::all_of(switches_.begin(), switches_.end(), [](const Switch& it) { return it.is_up; });
    if (!all_up && now() - started_ < options_.lease / 2) return;
    if (!take_over(renew)) {
      const std::string why = "the manager knows of no such session";
      return host.connection->send(message::encode(message::Lost{renew.request, why}));
    }
    found = jobs_.find(renew.request);
  }
  Job& job = *found->second;
  if (static_cast<size_t>(renew.rank) >= job.members.size()) return;
  Member& member = job.members[static_cast<size_t>(renew.rank)];
  member.host = &host;
  member.heard = now();
  const bool may_have_had_it = job.groups.size() < job.tree.size();
  if (may_have_had_it && renew.group && groups_.take(*renew.group)) {
    job.groups.emplace_back(renew.group);
  }
}

// Takes over a session that an earlier manager has installed.
bool Manager::take_over(const message::Renew& renew) {
  auto job = std::make_unique<Job>();
  for (int number = 0; number < static_cast<int>(switches_.size()); ++number) {
    if (admission_.has(number, renew.session)) job->tree.push_back({.number = number});
  }
  if (job->tree.empty() || job_of(renew.session) != nullptr) return false;
  job->request = renew.request;
  job->state = State::kUp;
  job->since = now();
  job->session = renew.session;
  job->streams = renew.streams;
  job->members.resize(static_cast<size_t>(renew.size));
  for (Member& member : job->members) {
    member.has_joined = true;
    member.heard = now();
  }
  log().info("nezha-manager: {} is taken over", name_of(renew.request));
  jobs_[renew.request] = std::move(job);
  return true;
}

void Manager::on_leave(const message::Leave& leave) {
  const auto found = jobs_.find(leave.request);
  if (found == jobs_.end()) return;
  Job& job = *found->second;
  if (static_cast<size_t>(leave.rank) >= job.members.size()) return;
  if (job.state != State::kUp) {
    return reject(job, absl::StrCat("rank ", leave.rank, " has left"));
  }
  job.members[static_cast<size_t>(leave.rank)].has_left = true;
  // Others may still need results that were lost on their way.
  const bool all_left = std::all_of(job.members.begin(), job.members.end(),
                                    [](const Member& member) { return member.has_left; });
  if (!all_left) return;
  log().info("nezha-manager: {} is over", name_of(leave.request));
  remove_from_switches(job);
  jobs_.erase(found);
}

void Manager::tell(const Job& job, const message::Message& message) {
  const std::string text = message::encode(message);
  for (const Member& member : job.members) {
    if (member.host != nullptr && !member.has_left) member.host->connection->send(text);
  }
}

// The job is gone after reject() and lose().
void Manager::reject(Job& job, const std::string& reason) {
  log().warn("nezha-manager: {} is rejected: {}", name_of(job.request), reason);
  tell(job, message::Rejected{job.request, reason});
  remove_from_switches(job);
  jobs_.erase(message::Request(job.request));
}

void Manager::lose(const Request& request, const std::string& reason) {
  const auto found = jobs_.find(request);
  Job& job = *found->second;
  log().warn("nezha-manager: {} is lost: {}", name_of(request), reason);
  tell(job, message::Lost{job.request, reason});
  remove_from_switches(job);
  jobs_.erase(found);
}

// ---- Switches ----------------------------------------------------------------------------------

void Manager::connect(int number) {
  const Address& to = options_.fabric.switches[static_cast<size_t>(number)].control;
  Switch& it = switches_[static_cast<size_t>(number)];
  net::Socket socket(::socket(to.family(), SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  it.connection = std::make_unique<SecureConnection>(
      progress_, std::move(socket), to, SecureStream::Service::kSwitch, secret_,
      absl::StrCat("the nezha-manager that is ", process_name()),
      SecureConnection::Callbacks{
          .on_message = [this, number](const std::string& text) { on_switch(number, text); },
          .on_closed = [this, number](const absl::Status& why) { on_switch_closed(number, why); }});
}

void Manager::on_switch_closed(int number, const absl::Status& why) {
  const FabricSwitch& known = options_.fabric.switches[static_cast<size_t>(number)];
  Switch& it = switches_[static_cast<size_t>(number)];
  const std::string text =
      absl::IsUnauthenticated(why)
          ? absl::StrCat("at ", known.control.str(),
                         " and its manager do not accept each other: ", why.message(),
                         "; their files of --secret must hold the same secret")
          : absl::StrCat("does not answer at ", known.control.str(), ": ", why.message());
  tell_of_silence(number, why, text);
  it.is_up = false;
  it.connection.reset();
  it.again->start(now() + kReconnect);
  admission_.went_down(number, text);
  std::vector<Job*> waiting;
  for (const auto& [request, job] : jobs_) {
    if (job->state == State::kInstalling && job->missing.contains(number)) {
      waiting.push_back(job.get());
    }
  }
  for (Job* job : waiting) try_another(*job, number, text);
}

// Logs a silence once, when it begins. A refused secret is logged also if the switch was silent
// before.
void Manager::tell_of_silence(int number, const absl::Status& why, const std::string& text) {
  const std::string& name = options_.fabric.switches[static_cast<size_t>(number)].name;
  Switch& it = switches_[static_cast<size_t>(number)];
  const bool begins = it.is_up || it.down_since == 0;
  if (begins) it.down_since = now();
  const bool is_refused = absl::IsUnauthenticated(why);
  const bool is_told = is_refused ? refusals_by_switches_.tell_of(name, now()).has_value() : begins;
  if (is_told) log().warn("nezha-manager: {} {}", name, text);
}

void Manager::on_switch(int number, const std::string& text) {
  const absl::StatusOr<message::Message> parsed = message::parse(text);
  if (!parsed.ok()) {
    log().warn("nezha-manager: a switch sent {}", std::string(parsed.status().message()));
  } else if (const auto* has = std::get_if<message::Has>(&*parsed)) {
    on_has(number, *has);
  } else if (const auto* installed = std::get_if<message::Installed>(&*parsed)) {
    on_installed(number, installed->session);
  } else if (const auto* refused = std::get_if<message::Refused>(&*parsed)) {
    on_refused(number, *refused);
  } else if (const auto* expired = std::get_if<message::Expired>(&*parsed)) {
    on_expired(number, *expired);
  }
}

void Manager::on_has(int number, const message::Has& has) {
  const std::string& name = options_.fabric.switches[static_cast<size_t>(number)].name;
  log().info("nezha-manager: {} is connected and has {} sessions", name, has.sessions.size());
  switches_[static_cast<size_t>(number)].is_up = true;
  admission_.came_up(number, has.memory, has.sessions);
  std::vector<Request> lost;
  for (const auto& [request, job] : jobs_) {
    const bool is_there = std::any_of(job->tree.begin(), job->tree.end(),
                                      [&](const TreeNode& node) { return node.number == number; });
    if (job->state == State::kUp && is_there && !admission_.has(number, job->session)) {
      lost.push_back(request);
    }
  }
  for (const Request& request : lost) lose(request, absl::StrCat(name, " has started again"));
}

void Manager::on_installed(int number, uint32_t session) {
  Job* const job = job_of(session);
  if (job == nullptr || job->state != State::kInstalling) return;
  job->missing.erase(number);
  if (job->missing.empty()) grant(*job);
}

void Manager::on_refused(int number, const message::Refused& refused) {
  Job* const job = job_of(refused.session);
  if (job == nullptr || job->state != State::kInstalling) return;
  try_another(*job, number, refused.reason);
}

void Manager::on_expired(int number, const message::Expired& expired) {
  const std::string& name = options_.fabric.switches[static_cast<size_t>(number)].name;
  for (const uint32_t session : expired.sessions) {
    admission_.release(number, session);
    Job* const job = job_of(session);
    if (job != nullptr) lose(job->request, absl::StrCat("its lease on ", name, " has run out"));
  }
}

void Manager::send(int number, const message::Message& message) {
  Switch& it = switches_[static_cast<size_t>(number)];
  if (it.is_up && it.connection != nullptr) it.connection->send(message::encode(message));
}

}  // namespace nezha::flare
