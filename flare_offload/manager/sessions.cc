// SPDX-License-Identifier: Apache-2.0
// The sessions of a manager: how jobs get them, keep them and lose them.
#include <openssl/rand.h>

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/log.h"
#include "flare_offload/manager/manager.h"

namespace nezha::flare {
namespace {

constexpr Nanos kTick = 500 * kMillisecond;

template <typename T>
T random_value() {
  T value{};
  if (RAND_bytes(reinterpret_cast<unsigned char*>(&value), sizeof value) != 1) {
    throw std::runtime_error("OpenSSL has no random bytes for a session's key");
  }
  return value;
}

}  // namespace

Manager::Job* Manager::job_of(uint32_t session) {
  for (const auto& [request, job] : jobs_) {
    if (job->state != State::kGathering &&
        session - job->session < static_cast<uint32_t>(job->streams))
      return job.get();
  }
  return nullptr;
}

uint32_t Manager::free_session(int streams) const {
  for (;;) {
    const auto first = random_value<uint32_t>() & 0x7fffffff;
    bool is_free = true;
    for (int i = 0; i < streams; ++i) {
      is_free = is_free && admission_.is_free(first + static_cast<uint32_t>(i));
    }
    if (is_free) return first;
  }
}

void Manager::install(Job& job) {
  std::vector<std::string> unusable;
  for (int number = 0; number < static_cast<int>(switches_.size()); ++number) {
    const auto why = admission_.why_not(number, job.streams);
    if (why) unusable.push_back(*why);
  }
  for (const auto& [number, why] : job.refusals) {
    unusable.push_back(absl::StrCat(options_.fabric.switches[static_cast<size_t>(number)].name,
                                    " refused: ", why));
  }
  std::vector<Address> hosts;
  for (const Member& member : job.members) hosts.push_back(member.address);
  absl::StatusOr<Tree> tree = build_tree(options_.fabric, hosts, [&](int number) {
    return !job.refusals.contains(number) && !admission_.why_not(number, job.streams);
  });
  if (!tree.ok()) {
    return reject(job, absl::StrCat(tree.status().message(), unusable.empty() ? "" : " (",
                                    absl::StrJoin(unusable, "; "), unusable.empty() ? "" : ")"));
  }
  const uint32_t window = admission_.window(*tree, job.window, job.payload, job.reproducible);
  if (window == 0) {
    return reject(job, absl::StrCat("a session's part of a switch's memory does not hold a window "
                                    "of one block of ",
                                    job.payload,
                                    " bytes; give the switches more memory, or the "
                                    "manager fewer --sessions"));
  }
  job.tree = *std::move(tree);
  job.window = window;
  job.state = State::kInstalling;
  job.session = free_session(job.streams);
  job.generation = random_value<uint16_t>();
  job.keys.clear();
  for (size_t node = 0; node < job.tree.size(); ++node) job.keys.push_back(random_value<Key>());
  take_groups(job);
  for (size_t node = 0; node < job.tree.size(); ++node) {
    const int number = job.tree[node].number;
    admission_.take(number, job.session, job.streams);
    job.missing.insert(number);
    send(number, message::Install{job.streams, options_.lease, spec(job, node)});
  }
}

// A switch with several hosts as children sends them each result once, to a group of theirs.
void Manager::take_groups(Job& job) {
  for (const TreeNode& node : job.tree) {
    int hosts = 0;
    bool all_may = options_.fabric.groups.has_value();
    for (const TreeNode::Child& child : node.children) {
      if (child.rank < 0) continue;
      ++hosts;
      all_may = all_may && job.members[static_cast<size_t>(child.rank)].multicast;
    }
    const bool is_of_use = all_may && hosts > 1;
    job.groups.push_back(is_of_use ? groups_.take() : std::nullopt);
    if (!is_of_use || job.groups.back()) continue;
    log().info("nezha-manager: {}: no multicast group is left; {} sends results to each host",
               name_of(job.request),
               options_.fabric.switches[static_cast<size_t>(node.number)].name);
  }
}

std::string Manager::spec(const Job& job, size_t node) const {
  const TreeNode& it = job.tree[node];
  const auto address = [&](int number) {
    return options_.fabric.switches[static_cast<size_t>(number)].data.str();
  };
  std::string text =
      absl::StrCat("session ", job.session, "\ngeneration ", job.generation, "\nkey ",
                   message::to_hex(job.keys[node]), "\nwindow ", job.window, "\npayload ",
                   job.payload, "\n", job.reproducible ? "reproducible\n" : "");
  for (const TreeNode::Child& child : it.children) {
    if (child.node < 0) {
      const Member& member = job.members[static_cast<size_t>(child.rank)];
      absl::StrAppend(&text, "child ", member.address.str(), " ", child.rank, "\n");
    } else {
      const TreeNode& below = job.tree[static_cast<size_t>(child.node)];
      absl::StrAppend(&text, "child ", address(below.number), " ", below.ranks.front(), "-",
                      below.ranks.back(), "\n");
    }
  }
  if (job.groups[node]) absl::StrAppend(&text, "group ", job.groups[node]->str(), "\n");
  if (it.parent >= 0) {
    const auto parent = static_cast<size_t>(it.parent);
    absl::StrAppend(&text, "parent ", address(job.tree[parent].number), " ", it.place, " ",
                    message::to_hex(job.keys[parent]), "\n");
  }
  return text;
}

void Manager::grant(Job& job) {
  job.state = State::kUp;
  const Nanos time = now();
  for (size_t node = 0; node < job.tree.size(); ++node) {
    const TreeNode& it = job.tree[node];
    for (size_t place = 0; place < it.children.size(); ++place) {
      const int rank = it.children[place].rank;
      if (rank < 0) continue;
      Member& member = job.members[static_cast<size_t>(rank)];
      member.heard = time;
      if (member.host == nullptr) continue;  // its lease runs out, if it does not come back
      member.host->connection->send(message::encode(
          message::Granted{.request = job.request,
                           .session = job.session,
                           .streams = job.streams,
                           .generation = job.generation,
                           .key = job.keys[node],
                           .address = options_.fabric.switches[static_cast<size_t>(it.number)].data,
                           .child = static_cast<uint8_t>(place),
                           .window = job.window,
                           .payload = job.payload,
                           .lease = options_.lease,
                           .group = job.groups[node]}));
    }
  }
  std::vector<std::string> names;
  for (const TreeNode& node : job.tree) {
    names.push_back(options_.fabric.switches[static_cast<size_t>(node.number)].name);
  }
  log().info("nezha-manager: {}: {} ranks over {}, sessions from {} on, a window of {} blocks",
             name_of(job.request), job.members.size(), absl::StrJoin(names, ", "), job.session,
             job.window);
}

void Manager::try_another(Job& job, int number, std::string why) {
  job.refusals[number] = std::move(why);
  remove_from_switches(job);
  job.missing.clear();
  install(job);
}

void Manager::remove_from_switches(Job& job) {
  message::Remove remove;
  for (int i = 0; i < job.streams; ++i) {
    remove.sessions.push_back(job.session + static_cast<uint32_t>(i));
  }
  for (const TreeNode& node : job.tree) {
    send(node.number, remove);
    for (const uint32_t session : remove.sessions) admission_.release(node.number, session);
  }
  for (const auto& group : job.groups) {
    if (group) groups_.release(*group);
  }
  job.groups.clear();
}

void Manager::tick() {
  tick_.start(now() + kTick);
  const Nanos time = now();
  std::map<int, message::Extend> extensions;  // indexed by switch
  std::map<Request, std::string> lost;
  std::vector<Request> late;
  for (const auto& [request, job] : jobs_) {
    if (job->state != State::kUp) {
      if (time - job->since > options_.patience) late.push_back(request);
      continue;
    }
    for (size_t rank = 0; rank < job->members.size(); ++rank) {
      const Member& member = job->members[rank];
      if (!member.has_left && time - member.heard > options_.lease) {
        lost[request] = absl::StrCat("the lease of rank ", rank, " has run out");
      }
    }
    for (const TreeNode& node : job->tree) {
      const Switch& it = switches_[static_cast<size_t>(node.number)];
      if (!it.is_up && time - it.down_since > options_.lease) {
        lost[request] = absl::StrCat(
            options_.fabric.switches[static_cast<size_t>(node.number)].name, " does not answer");
      }
      for (int i = 0; i < job->streams; ++i) {
        extensions[node.number].sessions.push_back(job->session + static_cast<uint32_t>(i));
      }
    }
  }
  for (const auto& [request, why] : lost) lose(request, why);
  for (const Request& request : late) {
    Job& job = *jobs_.at(request);
    std::vector<size_t> missing;
    for (size_t rank = 0; rank < job.members.size(); ++rank) {
      if (!job.members[rank].has_joined) missing.push_back(rank);
    }
    reject(job, missing.empty() ? std::string("the switches did not answer in time")
                                : absl::StrCat("rank ", absl::StrJoin(missing, ", "),
                                               " has not asked for the session in time"));
  }
  for (auto& [number, extend] : extensions) {
    extend.lease = options_.lease;
    send(number, extend);
  }
}

}  // namespace nezha::flare
