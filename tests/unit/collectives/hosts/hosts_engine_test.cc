// The hosts engine's algorithms, each rank an endpoint and a thread of this process, over loopback.
#include "collectives/hosts/hosts_engine.h"

#include <algorithm>
#include <bit>
#include <cctype>
#include <cmath>
#include <functional>
#include <map>
#include <memory>
#include <numeric>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "absl/strings/str_cat.h"
#include "collectives/signature.h"
#include "gtest/gtest.h"
#include "transport/endpoint.h"
#include "transport/tcp/device.h"

namespace nezha {
namespace {

constexpr UniqueId kJob{5, 6};

struct Rank final : AbortListener {
  std::shared_ptr<Endpoint> endpoint;
  Group group;
  std::map<std::string, std::string> addresses;
  void on_abort(const wire::Abort&) override {}
};

// `size` ranks, each with rails "a" and "b" on lo.
class World {
 public:
  explicit World(int size) {
    for (int r = 0; r < size; ++r) ranks_.push_back(make());
    for (int r = 0; r < size; ++r) {
      Rank& rank = *ranks_[static_cast<size_t>(r)];
      Progress::Guard guard(rank.endpoint->progress());
      rank.group.rank = r;
      rank.group.size = size;
      rank.group.context = 99;
      rank.group.pool = &rank.endpoint->pool();
      rank.group.channels.resize(static_cast<size_t>(size));
      for (int p = 0; p < size; ++p) {
        if (p == r) continue;
        const Rank& peer = *ranks_[static_cast<size_t>(p)];
        Channel& channel = rank.endpoint->channel(peer.endpoint->process());
        channel.set_peer(absl::StrCat("rank ", p), kJob, peer.addresses);
        rank.group.channels[static_cast<size_t>(p)] = &channel;
      }
    }
  }
  int size() const { return static_cast<int>(ranks_.size()); }
  Rank& rank(int r) { return *ranks_[static_cast<size_t>(r)]; }
  void kill(int r) { ranks_[static_cast<size_t>(r)]->endpoint.reset(); }

 private:
  static std::unique_ptr<Rank> make() {
    auto rank = std::make_unique<Rank>();
    rank->endpoint = *Endpoint::create();
    Progress::Guard guard(rank->endpoint->progress());
    for (const std::string name : {"a", "b"}) {
      const auto opened = rank->endpoint->open_device(
          name,
          [&](Progress& progress, Acceptor& acceptor,
              Rail number) -> absl::StatusOr<std::unique_ptr<Device>> {
            tcp::DeviceOptions options;
            options.interface = "lo";
            options.rail = name;
            auto device = tcp::TcpDevice::create(progress, acceptor, number, options);
            if (!device.ok()) return device.status();
            return std::unique_ptr<Device>(*std::move(device));
          });
      EXPECT_TRUE(opened.ok()) << opened.status();
      rank->addresses[name] = rank->endpoint->device(*opened)->address();
    }
    rank->endpoint->join(kJob, rank.get());
    return rank;
  }
  std::vector<std::unique_ptr<Rank>> ranks_;
};

// Depends on rank, element and operation. Sizes differ much, so that the order of summation shows.
float input(int rank, size_t element, uint32_t tag) {
  uint64_t x = (static_cast<uint64_t>(rank) + 1) * 0x9e3779b97f4a7c15u +
               element * 0xbf58476d1ce4e5b9u + tag * 0x94d049bb133111ebu;
  x ^= x >> 31;
  x *= 0xd6e8feb86659fd93u;
  x ^= x >> 32;
  return std::ldexp(static_cast<float>(x % 16'777'213) - 8'000'000,
                    static_cast<int>((x >> 40) % 24) - 12);
}

// The ring's order: chunk c begins at rank c; each next rank adds its own: (partial) + input.
std::vector<float> ring_sum(int size, size_t elements, uint32_t tag) {
  std::vector<float> result(elements);
  const Partition partition(elements, sizeof(float), size);
  for (int chunk = 0; chunk < size; ++chunk) {
    const Range range = partition.chunk(chunk, {});
    for (size_t i = range.offset / 4; i < (range.offset + range.length) / 4; ++i) {
      float sum = input(chunk, i, tag);
      for (int step = 1; step < size; ++step) sum += input((chunk + step) % size, i, tag);
      result[i] = sum;
    }
  }
  return result;
}

// Ranks beyond the power of two fold in first, then a binary tree by rank, lower operand first.
std::vector<float> doubling_sum(int size, size_t elements, uint32_t tag) {
  const int power = static_cast<int>(std::bit_floor(static_cast<unsigned>(size)));
  std::vector<float> result(elements);
  std::vector<float> parts(static_cast<size_t>(power));
  for (size_t i = 0; i < elements; ++i) {
    for (int r = 0; r < power; ++r) {
      float& part = parts[static_cast<size_t>(r)];
      part = input(r, i, tag);
      if (r + power < size) part += input(r + power, i, tag);
    }
    for (size_t width = parts.size(); width > 1; width /= 2) {
      for (size_t r = 0; r < width / 2; ++r) parts[r] = parts[2 * r] + parts[2 * r + 1];
    }
    result[i] = parts[0];
  }
  return result;
}

// Groups of neighbours first, then groups of these; in each of them from left to right.
std::vector<float> bcube_sum(const std::vector<int>& groups, size_t elements, uint32_t tag) {
  const int size = std::accumulate(groups.begin(), groups.end(), 1, std::multiplies<>());
  std::vector<float> result(elements);
  for (size_t i = 0; i < elements; ++i) {
    std::vector<float> parts;
    parts.reserve(static_cast<size_t>(size));
    for (int r = 0; r < size; ++r) parts.push_back(input(r, i, tag));
    for (const int group : groups) {
      const auto members = static_cast<size_t>(group);
      for (size_t g = 0; g < parts.size() / members; ++g) {
        float sum = parts[g * members];
        for (size_t j = 1; j < members; ++j) sum += parts[g * members + j];
        parts[g] = sum;
      }
      parts.resize(parts.size() / members);
    }
    result[i] = parts[0];
  }
  return result;
}

// As bcube.h says.
const std::map<int, std::vector<int>> kBcubeGroups = {
    {1, {}},    {2, {2}},     {3, {3}},     {4, {4}},     {5, {5}},   {6, {3, 2}},
    {7, {7}},   {8, {4, 2}},  {9, {3, 3}},  {10, {2, 5}}, {11, {11}}, {12, {4, 3}},
    {13, {13}}, {14, {2, 7}}, {15, {3, 5}}, {16, {4, 4}}};

std::vector<float> expected(Algorithm algorithm, int size, size_t elements, uint32_t tag) {
  switch (algorithm) {
    case Algorithm::kRing:
      return ring_sum(size, elements, tag);
    case Algorithm::kDirect:
      return bcube_sum({size}, elements, tag);
    case Algorithm::kBcube:
      return bcube_sum(kBcubeGroups.at(size), elements, tag);
    default:
      return doubling_sum(size, elements, tag);
  }
}

constexpr Algorithm kAlgorithms[] = {Algorithm::kRing, Algorithm::kRecursiveDoubling,
                                     Algorithm::kHalvingDoubling, Algorithm::kDirect,
                                     Algorithm::kBcube};

struct Lane {
  SliceBounds bounds;
  RailMask rails = kAllRails;
};

// One rank's allreduce.
class RankRun final : public TaskOwner {
 public:
  RankRun(Rank& rank, Algorithm algorithm, size_t elements, uint32_t tag, bool in_place,
          const std::vector<Lane>& lanes)
      : rank_(rank), in_(elements), out_(elements, -1.0f) {
    for (size_t i = 0; i < elements; ++i) in_[i] = input(rank.group.rank, i, tag);
    original_ = in_;
    Operation op;
    op.input = reinterpret_cast<const std::byte*>(in_.data());
    op.output = reinterpret_cast<std::byte*>(in_place ? in_.data() : out_.data());
    op.elements = elements;
    op.element_size = sizeof(float);
    op.tag = tag;
    for (size_t i = 0; i < lanes.size(); ++i) {
      slices_.push_back({op, lanes[i].bounds, static_cast<uint8_t>(i), lanes[i].rails});
    }
    plan_.algorithm = algorithm;
    in_place_ = in_place;
  }

  // Under the lock.
  void start() {
    for (const Slice& slice : slices_) {
      auto task = engine_.start(rank_.group, slice, plan_, *this);
      if (!task.ok()) {
        status = task.status();
        break;
      }
      tasks_.push_back(*std::move(task));
    }
    started_ = true;
    finish_if_over();
  }
  void on_finished(Task& task) override {
    if (task.poll() == Task::State::kFailed) status = task.status();
    finish_if_over();
  }
  const std::vector<float>& result() const { return in_place_ ? in_ : out_; }
  bool input_is_intact() const { return in_place_ || in_ == original_; }
  void freeze() {
    for (auto& task : tasks_) task->freeze();
  }

  Waiter waiter;
  absl::Status status;

 private:
  void finish_if_over() {
    if (!started_) return;
    bool over = !status.ok();
    if (!over) {
      over = true;
      for (const auto& task : tasks_) over &= task->poll() == Task::State::kDone;
    }
    if (over) rank_.endpoint->progress().finish(waiter);
  }

  Rank& rank_;
  HostsEngine engine_;
  std::vector<float> in_, out_, original_;
  std::vector<Slice> slices_;
  EnginePlan plan_;
  bool in_place_ = false;
  bool started_ = false;
  std::vector<std::unique_ptr<Task>> tasks_;
};

void allreduce(Rank& rank, Algorithm algorithm, size_t elements, uint32_t tag, bool in_place,
               const std::vector<Lane>& lanes) {
  Progress& progress = rank.endpoint->progress();
  const std::vector<float> wanted = expected(algorithm, rank.group.size, elements, tag);
  RankRun run(rank, algorithm, elements, tag, in_place, lanes);
  {
    Progress::Guard guard(progress);
    run.start();
    EXPECT_TRUE(progress.wait(guard, run.waiter, now() + 60 * kSecond)) << "it hangs";
    run.freeze();
    progress.run_deferred();
  }
  ASSERT_TRUE(run.status.ok()) << run.status;
  EXPECT_TRUE(run.input_is_intact());
  for (size_t i = 0; i < elements; ++i) {
    ASSERT_EQ(std::bit_cast<uint32_t>(run.result()[i]), std::bit_cast<uint32_t>(wanted[i]))
        << "element " << i << " of " << elements << " at rank " << rank.group.rank;
  }
}

template <typename F>
void on_all_ranks(World& world, F f) {
  std::vector<std::thread> threads;
  threads.reserve(static_cast<size_t>(world.size()));
  for (int r = 0; r < world.size(); ++r)
    threads.emplace_back([&world, &f, r] { f(world.rank(r)); });
  for (auto& thread : threads) thread.join();
}

const Lane kWhole{};

class HostsEngineTest : public ::testing::TestWithParam<std::tuple<Algorithm, int>> {};

TEST_P(HostsEngineTest, EveryRankGetsTheBitsOfTheDocumentedOrder) {
  const auto [algorithm, size] = GetParam();
  World world(size);
  on_all_ranks(world, [algorithm = algorithm](Rank& rank) {
    uint32_t tag = 0;
    for (const size_t elements :
         {size_t{0}, size_t{1}, size_t{3}, size_t{16}, size_t{1001}, size_t{40'009}}) {
      for (const bool in_place : {false, true}) {
        allreduce(rank, algorithm, elements, ++tag, in_place, {kWhole});
        if (::testing::Test::HasFailure()) return;
      }
    }
  });
}

TEST_P(HostsEngineTest, SlicesDoNotChangeTheBits) {
  const auto [algorithm, size] = GetParam();
  World world(size);
  on_all_ranks(world, [algorithm = algorithm](Rank& rank) {
    constexpr uint32_t kCut = 300'001;
    const std::vector<Lane> lanes{{{0, kCut}, rail_bit(0)},
                                  {{kCut, SliceBounds::kWhole}, rail_bit(1)}};
    for (const size_t elements : {size_t{0}, size_t{5}, size_t{30'011}}) {
      allreduce(rank, algorithm, elements, static_cast<uint32_t>(elements), elements % 2 == 0,
                lanes);
      if (::testing::Test::HasFailure()) return;
    }
  });
}

INSTANTIATE_TEST_SUITE_P(, HostsEngineTest,
                         ::testing::Combine(::testing::ValuesIn(kAlgorithms),
                                            ::testing::Range(1, 17)),
                         [](const auto& param) {
                           std::string name = algorithm_name(std::get<0>(param.param));
                           std::erase_if(name, [](char c) { return !std::isalpha(c); });
                           return absl::StrCat(name, "_", std::get<1>(param.param));
                         });

TEST(HostsEngine, NoRankIsDoneBeforeTheLastHasBegun) {
  std::vector<std::pair<Algorithm, size_t>> cases;
  for (const Algorithm algorithm : kAlgorithms) {
    for (const size_t elements : {0, 1, 1000}) {
      // Around a ring of nothing a rank waits for nobody: the engine does not choose it.
      if (algorithm != Algorithm::kRing || elements > 0) cases.emplace_back(algorithm, elements);
    }
  }
  for (const auto& [algorithm, elements] : cases) {
    World world(4);
    std::vector<std::unique_ptr<RankRun>> runs;
    runs.reserve(4);
    for (int r = 0; r < 4; ++r) {
      runs.push_back(std::make_unique<RankRun>(world.rank(r), algorithm, elements, 1, false,
                                               std::vector<Lane>{kWhole}));
    }
    const auto progress_of = [&](int r) -> Progress& { return world.rank(r).endpoint->progress(); };
    const auto start = [&](int r) {
      Progress::Guard guard(progress_of(r));
      runs[static_cast<size_t>(r)]->start();
    };
    const auto is_done = [&](int r, Nanos within) {
      Progress::Guard guard(progress_of(r));
      return progress_of(r).wait(guard, runs[static_cast<size_t>(r)]->waiter, now() + within);
    };
    for (int r = 0; r < 3; ++r) start(r);
    for (int r = 0; r < 3; ++r) EXPECT_FALSE(is_done(r, 50 * kMillisecond)) << "rank " << r;
    start(3);
    for (int r = 0; r < 4; ++r) EXPECT_TRUE(is_done(r, 60 * kSecond)) << "rank " << r;
    for (int r = 0; r < 4; ++r) {
      Progress::Guard guard(progress_of(r));
      runs[static_cast<size_t>(r)].reset();
      progress_of(r).run_deferred();
    }
  }
}

// The ring's window, and several rounds of the others.
TEST(HostsEngine, Megabytes) {
  for (const int size : {3, 4}) {
    World world(size);
    on_all_ranks(world, [](Rank& rank) {
      uint32_t tag = 0;
      for (const Algorithm algorithm : kAlgorithms) {
        allreduce(rank, algorithm, (2 << 20) + 1, ++tag, false, {kWhole});
        allreduce(rank, algorithm, (1 << 20) + 7, ++tag, true, {kWhole});
      }
    });
  }
}

TEST(HostsEngine, OperationsOfDifferentTagsRunAtOnceInAnyOrder) {
  World world(4);
  on_all_ranks(world, [](Rank& rank) {
    std::vector<std::thread> threads;
    for (uint32_t t = 0; t < 4; ++t) {
      threads.emplace_back([&rank, t] {
        for (uint32_t i = 0; i < 10; ++i) {
          // Another order on each rank.
          const uint32_t tag = (t + static_cast<uint32_t>(rank.group.rank)) % 4;
          allreduce(rank, kAlgorithms[(tag + i) % std::size(kAlgorithms)], 1000 * (tag + 1) + i,
                    tag, false, {kWhole});
        }
      });
    }
    for (auto& thread : threads) thread.join();
  });
}

TEST(HostsEngine, RanksThatDisagreeAreTold) {
  for (const Algorithm algorithm : kAlgorithms) {
    World world(2);
    on_all_ranks(world, [algorithm](Rank& rank) {
      Progress& progress = rank.endpoint->progress();
      RankRun run(rank, algorithm, rank.group.rank == 0 ? 100 : 101, 1, false, {kWhole});
      Progress::Guard guard(progress);
      run.start();
      EXPECT_TRUE(progress.wait(guard, run.waiter, now() + 60 * kSecond));
      run.freeze();
      progress.run_deferred();
      EXPECT_TRUE(absl::IsFailedPrecondition(run.status)) << run.status;
      EXPECT_NE(run.status.message().find(absl::StrCat("rank ", 1 - rank.group.rank)),
                absl::string_view::npos);
    });
  }
}

TEST(HostsEngine, ADeadRankFailsTheOthersTask) {
  for (const Algorithm algorithm : kAlgorithms) {
    for (const size_t elements : {size_t{10}, size_t{200'000}}) {
      World world(3);
      on_all_ranks(
          world, [algorithm](Rank& rank) { allreduce(rank, algorithm, 1000, 1, false, {kWhole}); });
      world.kill(2);
      // Rank 0 is joined to rank 2 in all algorithms.
      Rank& rank = world.rank(0);
      Progress& progress = rank.endpoint->progress();
      RankRun run(rank, algorithm, elements, 3, true, {kWhole});
      Progress::Guard guard(progress);
      run.start();
      EXPECT_TRUE(progress.wait(guard, run.waiter, now() + 60 * kSecond));
      run.freeze();
      progress.run_deferred();
      EXPECT_TRUE(absl::IsUnavailable(run.status)) << run.status;
      EXPECT_NE(run.status.message().find("rank 2"), absl::string_view::npos) << run.status;
    }
  }
}

TEST(HostsEngine, AFrozenTaskLeavesTheMemoryAlone) {
  for (const Algorithm algorithm : kAlgorithms) {
    World world(2);
    {
      Rank& rank = world.rank(0);
      Progress& progress = rank.endpoint->progress();
      auto run =
          std::make_unique<RankRun>(rank, algorithm, 50'000, 1, true, std::vector<Lane>{kWhole});
      Progress::Guard guard(progress);
      run->start();
      run->freeze();
      EXPECT_EQ(run->status, absl::OkStatus()) << "the owner is not told";
      EXPECT_EQ(run->result()[7], input(0, 7, 1)) << "no final value, so still the input";
      run.reset();  // the address sanitizer sees what is used afterwards
      progress.run_deferred();
    }
    Rank& other = world.rank(1);
    Progress& progress = other.endpoint->progress();
    RankRun run(other, algorithm, 50'000, 1, true, {kWhole});
    Progress::Guard guard(progress);
    run.start();
    EXPECT_FALSE(progress.wait(guard, run.waiter, now() + 20 * kMillisecond));
    run.freeze();
    progress.run_deferred();
  }
}

Algorithm chosen(Algorithm asked, int ranks, size_t elements, bool commutative = true) {
  Operation op;
  op.elements = elements;
  op.element_size = 4;
  op.commutative = commutative;
  return HostsEngine::choose(asked, ranks, op);
}

TEST(HostsEngine, ChoosesByRanksAndSize) {
  EXPECT_EQ(chosen(Algorithm::kAuto, 8, 16), Algorithm::kRecursiveDoubling);
  EXPECT_EQ(chosen(Algorithm::kAuto, 8, 64 << 10), Algorithm::kHalvingDoubling);
  EXPECT_EQ(chosen(Algorithm::kAuto, 8, 16 << 20), Algorithm::kRing);
  EXPECT_EQ(chosen(Algorithm::kAuto, 2, 64 << 10), Algorithm::kRing);
  EXPECT_EQ(chosen(Algorithm::kAuto, 1000, 16), Algorithm::kRecursiveDoubling);
}

TEST(HostsEngine, TakesWhatWasAskedForUnlessThatCannotServe) {
  for (const Algorithm asked : kAlgorithms) {
    EXPECT_EQ(chosen(asked, 8, 1000), asked);
    EXPECT_EQ(chosen(asked, 8, 0), Algorithm::kRecursiveDoubling);
    EXPECT_EQ(chosen(asked, 8, 1000, /*commutative=*/false), Algorithm::kDirect);
  }
}

TEST(HostsEngine, PeersAreMutual) {
  const HostsEngine engine;
  for (const Algorithm algorithm : kAlgorithms) {
    for (int size = 1; size <= 33; ++size) {
      const auto peers = [&](int rank) {
        Group group;
        group.rank = rank;
        group.size = size;
        return engine.peers(group, {algorithm, 0, 0});
      };
      for (int rank = 0; rank < size; ++rank) {
        for (const int peer : peers(rank)) {
          ASSERT_NE(peer, rank);
          ASSERT_TRUE(peer >= 0 && peer < size);
          const auto back = peers(peer);
          ASSERT_NE(std::find(back.begin(), back.end(), rank), back.end());
        }
      }
    }
  }
}

}  // namespace
}  // namespace nezha
