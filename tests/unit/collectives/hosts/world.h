// SPDX-License-Identifier: Apache-2.0
// Ranks for the tests of the hosts engine, over loopback; each is an endpoint and a thread of this
// process.
#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/base/config.h"
#include "absl/strings/str_cat.h"
#include "collectives/engine.h"
#include "collectives/hosts/hosts_engine.h"
#include "gtest/gtest.h"
#include "tests/unit/collectives/reference.h"
#include "transport/endpoint.h"
#include "transport/tcp/device.h"

namespace nezha {

constexpr UniqueId kJob{5, 6};

// The numbers of ranks that algorithms are tested with. Sanitizers leave out large ones, whose
// ranks take the same ways for much longer.
#if defined(ABSL_HAVE_ADDRESS_SANITIZER) || defined(ABSL_HAVE_THREAD_SANITIZER)
inline constexpr std::array kSizes = {1, 2, 3, 4, 5, 6, 7, 8, 11};
#else
inline constexpr std::array kSizes = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16};
#endif

struct Rank final : JobListener {
  std::shared_ptr<Endpoint> endpoint;
  Group group;
  HostsEngine engine;  // one for all operations of the rank, as in a context
  std::map<std::string, std::string> addresses;
  void on_abort(const wire::Abort&) override {}
  void on_roll_call(const wire::RollCall&) override {}
  void on_failed(const absl::Status&) override {}
};

// `size` ranks with the rails "a" and "b" on lo. The rails have threads of their own if there are
// `cpus` for them.
class World {
 public:
  explicit World(int size, const Cpus& cpus = {}) {
    for (int r = 0; r < size; ++r) ranks_.push_back(make(cpus));
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
  static std::unique_ptr<Rank> make(const Cpus& cpus) {
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
            options.cpus = cpus;
            auto device = tcp::TcpDevice::create(progress, acceptor, number, options);
            if (!device.ok()) return device.status();
            return std::unique_ptr<Device>(*std::move(device));
          });
      EXPECT_TRUE(opened.ok()) << opened.status();
      rank->addresses[name] = rank->endpoint->device(*opened)->address();
    }
    EXPECT_TRUE(rank->endpoint->join(kJob, rank.get()).ok());
    return rank;
  }
  std::vector<std::unique_ptr<Rank>> ranks_;
};

// If a tag has this bit, the inputs of its operations include NaNs with many payloads, infinities,
// and zeros of both signs.
constexpr uint32_t kSpecialValues = 1U << 20;

template <typename T>
T special_value(uint64_t random) {
  if (random % 2 == 0) return T(random % 4 == 0 ? 0.0F : -0.0F);
  // Infinities, quiet NaNs and signalling NaNs, all of both signs.
  constexpr int kFractionBits = std::is_same_v<T, double>     ? 52
                                : std::is_same_v<T, float>    ? 23
                                : std::is_same_v<T, BFloat16> ? 7
                                                              : 10;
  const uint64_t infinity = reference::bits_of(T(std::numeric_limits<float>::infinity()));
  const uint64_t sign = (random >> 1) % 2 << (8 * sizeof(T) - 1);
  const uint64_t payload =
      (random >> 2) % 4 == 0 ? 0 : (random >> 4) % (uint64_t{1} << kFractionBits);
  const uint64_t bits = sign | infinity | payload;
  T value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

// Depends on the rank, the element and the operation. Floating-point values differ widely in
// magnitude, so that the result shows the order of summation.
template <typename T = float>
T input(int rank, size_t element, uint32_t tag) {
  uint64_t x = (static_cast<uint64_t>(rank) + 1) * 0x9e3779b97f4a7c15u +
               element * 0xbf58476d1ce4e5b9u + tag * 0x94d049bb133111ebu;
  x ^= x >> 31;
  x *= 0xd6e8feb86659fd93u;
  x ^= x >> 32;
  if constexpr (!std::is_integral_v<T>) {
    if ((tag & kSpecialValues) != 0) return special_value<T>(x);
  }
  if constexpr (std::is_integral_v<T>) {
    return static_cast<T>(x);
  } else {
    return T(std::ldexp(static_cast<float>(x % 16'777'213) - 8'000'000,
                        static_cast<int>((x >> 40) % 24) - 24));
  }
}

// Composes functions x -> m·x + c modulo 2^32, first a, then b. This is associative but not
// commutative. The upper half of each number is m.
inline uint64_t compose(uint64_t a, uint64_t b) {
  const uint64_t m = b >> 32;
  const uint64_t c = m * (a & 0xffffffff) + b;
  return ((a >> 32) * m) << 32 | (c & 0xffffffff);
}

struct Lane {
  SliceBounds bounds;
  RailMask rails = kAllRails;
};

// Which operation the ranks run, and how.
struct Work {
  size_t elements = 0;
  uint32_t tag = 0;
  bool in_place = false;
  ReduceOperation operation = ReduceOperation::kSum;
  const ReduceFunction* function = nullptr;
  Collective collective = Collective::kAllreduce;
  int root = 0;
};

template <typename T>
std::vector<T> inputs(int rank, const Work& work) {
  std::vector<T> values(work.elements);
  for (size_t i = 0; i < work.elements; ++i) values[i] = input<T>(rank, i, work.tag);
  return values;
}

// One rank's part in the operation.
template <typename T = float>
class RankRun final : public TaskOwner {
 public:
  RankRun(Rank& rank, ScheduleKind schedule, const Work& work, const std::vector<Lane>& lanes)
      : RankRun(rank, schedule, work, lanes, inputs<T>(rank.group.rank, work)) {}
  RankRun(Rank& rank, ScheduleKind schedule, const Work& work, const std::vector<Lane>& lanes,
          std::vector<T> in)
      : rank_(rank),
        in_(std::move(in)),
        out_(work.elements),
        original_(in_),
        in_place_(work.in_place) {
    const bool is_root = rank.group.rank == work.root;
    const bool contributes = work.collective != Collective::kBroadcast || is_root;
    has_result_ = work.collective == Collective::kAllreduce ||
                  (work.collective == Collective::kReduce) == is_root;
    Operation op;
    op.collective = work.collective;
    op.root = work.root;
    if (contributes) op.input = reinterpret_cast<const std::byte*>(in_.data());
    if (has_result_) {
      op.output = reinterpret_cast<std::byte*>(in_place_ ? in_.data() : out_.data());
    }
    op.elements = work.elements;
    op.element_size = sizeof(T);
    op.type = dataTypeOf<T>();
    op.operation = work.operation;
    op.function = work.function;
    op.tag = work.tag;
    for (size_t i = 0; i < lanes.size(); ++i) {
      slices_.push_back({op, lanes[i].bounds, static_cast<uint8_t>(i), lanes[i].rails});
    }
    plan_.schedule = schedule;
  }

  // Call with the lock held.
  void start() {
    for (const Slice& slice : slices_) {
      auto task = rank_.engine.start(rank_.group, slice, plan_, *this);
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
  bool has_result() const { return has_result_; }
  const std::vector<T>& result() const { return in_place_ ? in_ : out_; }
  bool input_is_intact() const {
    return (in_place_ && has_result_) || in_.empty() ||
           std::memcmp(in_.data(), original_.data(), in_.size() * sizeof(T)) == 0;
  }
  void freeze() {
    for (auto& task : tasks_) task->freeze();
  }
  // The task of the first slice, which was started.
  const Task& task() const { return *tasks_.front(); }

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
  std::vector<T> in_, out_, original_;
  bool in_place_;
  bool has_result_ = false;
  std::vector<Slice> slices_;
  EnginePlan plan_;
  bool started_ = false;
  std::vector<std::unique_ptr<Task>> tasks_;
};

template <typename F>
void on_all_ranks(World& world, F f) {
  std::vector<std::thread> threads;
  threads.reserve(static_cast<size_t>(world.size()));
  for (int r = 0; r < world.size(); ++r)
    threads.emplace_back([&world, &f, r] { f(world.rank(r)); });
  for (auto& thread : threads) thread.join();
}

inline const Lane kWhole{};

}  // namespace nezha
