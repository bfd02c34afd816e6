// SPDX-License-Identifier: Apache-2.0
// The engines of several ranks in one thread, with a real switch on loopback and a manager whose
// part the test plays. The ranks' channels are in memory.
#pragma once

#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <numeric>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "flare_offload/engine/flare_engine.h"
#include "flare_offload/switchd/server.h"
#include "gtest/gtest.h"
#include "tests/unit/flare_offload/stage.h"
#include "tests/unit/transport/fake_link.h"
#include "tests/unit/transport/log_lines.h"

namespace nezha::flare {

// The environment names a file with a secret as long as this exists.
class SecretFile {
 public:
  SecretFile() : path_(absl::StrCat(::testing::TempDir(), "flare-secret-", getpid())) {
    std::ofstream(path_) << "the secret of a test";
    setenv("NEZHA_FLARE_SECRET", path_.c_str(), 1);
  }
  ~SecretFile() {
    unsetenv("NEZHA_FLARE_SECRET");
    unlink(path_.c_str());
  }
  SecretFile(const SecretFile&) = delete;
  SecretFile& operator=(const SecretFile&) = delete;
  Secret secret() const { return *read_secret(path_); }

 private:
  const std::string path_;
};

// One operation at one rank.
struct EngineCall final : TaskOwner {
  std::vector<uint32_t> in, out;
  std::unique_ptr<Task> task;
  bool is_over = false;

  void on_finished(Task& /*task*/) override { is_over = true; }
};

// A rank's context, as the engine sees it.
struct EngineUser final : FlareEngineOwner {
  Group group;
  std::unique_ptr<FlareEngine> engine;
  std::set<OperationId> started;
  bool recovers = false;
  int ups = 0;
  int downs = 0;
  absl::Status failure;

  void on_engine_up() override { ++ups; }
  void on_engine_down() override { ++downs; }
  void on_failed(const absl::Status& why) override { failure = why; }
  bool has_started(const OperationId& operation) const override {
    return started.contains(operation);
  }
  bool is_recovering() const override { return recovers; }

  // Starts it with inputs that differ from rank to rank.
  std::unique_ptr<EngineCall> start(Operation op, size_t elements, SliceBounds bounds = {}) {
    auto call = std::make_unique<EngineCall>();
    call->in.resize(elements);
    call->out.resize(elements);
    std::iota(call->in.begin(), call->in.end(), static_cast<uint32_t>(group.rank * 1000));
    const bool has_root = op.collective == Collective::kBroadcast;
    op.elements = elements;
    op.element_size = sizeof(uint32_t);
    op.type = DataType::kUint32;
    if (!has_root || op.root == group.rank) {
      op.input = reinterpret_cast<const std::byte*>(call->in.data());
    }
    op.output = reinterpret_cast<std::byte*>(call->out.data());
    started.insert(op.id());
    auto task = engine->start(group, {.operation = op, .bounds = bounds}, {}, *call);
    EXPECT_TRUE(task.ok()) << task.status();
    if (task.ok()) call->task = *std::move(task);
    return call;
  }
};

// An allreduce.
inline Operation sum_of(uint32_t tag, uint64_t ordinal = 1) {
  Operation op;
  op.tag = tag;
  op.ordinal = ordinal;
  return op;
}

// The sum of what all ranks contribute.
inline std::vector<uint32_t> total_of(size_t elements, uint32_t ranks) {
  std::vector<uint32_t> sum(elements);
  for (uint32_t i = 0; i < elements; ++i) sum[i] = ranks * i + 1000 * (ranks * (ranks - 1) / 2);
  return sum;
}

class EngineRanks : public ::testing::Test {
 protected:
  static constexpr uint32_t kPayload = 64;  // bytes, so that operations have several blocks
  static constexpr uint32_t kWindow = 8;
  static constexpr uint32_t kSessionsOfAttempt = 16;

  EngineRanks() {
    manager_.on_message = [this](FakeService::Peer& from, const message::Message& what) {
      if (const auto* join = std::get_if<message::Join>(&what)) on_join(from, *join);
    };
    stage_.also([this] {
      for (const auto& network : networks_) network->settle_down();
    });
  }
  ~EngineRanks() override {
    calls_.clear();
    for (auto& user : users_) user->engine.reset();
  }

  FlareOptions options() const { return {.interface = "lo", .manager = manager_.address()}; }
  // Makes ranks whose engines are not connected yet.
  void make(int ranks, const FlareOptions& options) {
    for (int rank = 1; rank < ranks; ++rank) {
      networks_.push_back(std::make_unique<FakeNetwork>(stage_.progress(), 1, 1));
    }
    for (int rank = 0; rank < ranks; ++rank) {
      EngineUser& user = *users_.emplace_back(std::make_unique<EngineUser>());
      user.group.rank = rank;
      user.group.size = ranks;
      user.group.context = FakeNetwork::kJob.low;
      auto engine = FlareEngine::open(stage_.progress(), options, user.group, FakeNetwork::kJob,
                                      log_of_rank(rank, ranks), user);
      ASSERT_TRUE(engine.ok()) << engine.status();
      user.engine = *std::move(engine);
    }
  }
  // Connects that rank and rank 0.
  void connect(int rank) {
    user(rank).engine->connect(0, network_of(rank).channel(1));
    user(0).engine->connect(rank, network_of(rank).channel(0));
  }
  void connect_all() {
    for (int rank = 1; rank < static_cast<int>(users_.size()); ++rank) connect(rank);
  }
  void make_up(int ranks, const FlareOptions& options) {
    ASSERT_NO_FATAL_FAILURE(make(ranks, options));
    connect_all();
    ASSERT_TRUE(stage_.until([this] { return all_up(); }));
  }
  void make_up(int ranks) { make_up(ranks, options()); }
  EngineUser& user(int rank) { return *users_[static_cast<size_t>(rank)]; }
  nezha::testing::FakeNetwork& network_of(int rank) {
    return *networks_[static_cast<size_t>(rank) - 1];
  }
  bool all_up() const {
    return std::all_of(users_.begin(), users_.end(),
                       [](const auto& user) { return user->engine->is_up(); });
  }
  bool all_down() const {
    return std::all_of(users_.begin(), users_.end(),
                       [](const auto& user) { return user->downs > 0; });
  }
  bool is_any_up() const {
    return std::any_of(users_.begin(), users_.end(),
                       [](const auto& user) { return user->engine->is_up(); });
  }
  // A rank's end.
  void leave(int rank) {
    user(rank).engine.reset();
    for (int other = 1; other < static_cast<int>(users_.size()); ++other) {
      if (rank == 0 || rank == other) {
        network_of(other).channel(rank == 0 ? 0 : 1).leave(FakeNetwork::kJob);
      }
    }
  }

  // Once all ranks have asked, there is a session, and the manager answers each of them, unless the
  // answer is nothing.
  void on_join(FakeService::Peer& from, const message::Join& join) {
    auto& all = asked_[join.request.attempt];
    all[join.rank] = {&from, join};
    if (static_cast<int>(all.size()) < join.size) return;
    join_times_.push_back(now());
    install(all);
    for (const auto& [rank, asked] : all) {
      if (const auto what = answer_(asked.second)) asked.first->send(*what);
    }
  }
  using Asked = std::map<int, std::pair<FakeService::Peer*, message::Join>>;  // by rank
  void install(const Asked& all) {
    const message::Join& first = all.begin()->second.second;
    SessionSpec spec;
    spec.session = first.request.attempt * kSessionsOfAttempt;
    spec.table.window = kWindow;
    spec.table.payload = kPayload;
    for (const auto& [rank, asked] : all) {
      spec.children.push_back(asked.second.address);
      spec.table.children.push_back({static_cast<uint16_t>(rank), 1});
    }
    for (int stream = 0; stream < first.streams; ++stream, ++spec.session) {
      EXPECT_TRUE(switch_->install(spec).ok());
    }
  }
  message::Granted grant_to(const message::Join& join) const {
    return {.request = join.request,
            .session = join.request.attempt * kSessionsOfAttempt,
            .streams = join.streams,
            .address = *switch_->address(),
            .child = static_cast<uint8_t>(join.rank),
            .window = kWindow,
            .payload = kPayload,
            .lease = 3600 * kSecond};
  }
  // Waits until the calls have ended well.
  void await_calls() {
    ASSERT_TRUE(stage_.until([this] {
      return std::all_of(calls_.begin(), calls_.end(),
                         [](const auto& call) { return call->is_over; });
    }));
    for (const auto& call : calls_) {
      EXPECT_EQ(call->task->poll(), Task::State::kDone) << call->task->status();
    }
  }
  // All ranks start the operation, and it ends well.
  void run_on_all(const Operation& op, size_t elements) {
    calls_.clear();
    for (const auto& user : users_) calls_.push_back(user->start(op, elements));
    await_calls();
  }
  // The manager takes the session from all ranks.
  void lose_session() {
    for (const auto& [rank, asked] : asked_.rbegin()->second) {
      asked.first->send(message::Lost{asked.second.request, "the test takes it back"});
    }
    ASSERT_TRUE(stage_.until([this] { return all_down(); }));
  }

  using FakeNetwork = nezha::testing::FakeNetwork;
  nezha::testing::LogLines log_;
  SecretFile secret_;
  Stage stage_;
  FakeService manager_{stage_, SecureStream::Service::kManager, secret_.secret()};
  std::unique_ptr<Server> switch_ = *Server::listen(some_port(), 1 << 22, 1);
  std::function<std::optional<message::Message>(const message::Join&)> answer_ =
      [this](const message::Join& join) { return message::Message(grant_to(join)); };
  std::map<uint32_t, Asked> asked_;  // by attempt
  std::vector<Nanos> join_times_;    // when all had asked
  std::vector<std::unique_ptr<FakeNetwork>> networks_;
  std::vector<std::unique_ptr<EngineUser>> users_;
  std::vector<std::unique_ptr<EngineCall>> calls_;
};

}  // namespace nezha::flare
