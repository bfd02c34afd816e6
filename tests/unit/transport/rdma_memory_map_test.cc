// SPDX-License-Identifier: Apache-2.0
#ifdef NEZHA_HAS_RDMA
#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "gtest/gtest.h"
#include "tests/unit/transport/log_lines.h"
#include "transport/rdma/memory_map.h"

namespace nezha::rdma {
namespace {

constexpr size_t kMiB = size_t{1} << 20;
constexpr size_t kPage = 4096;

// ---- A kernel that registers -------------------------------------------------------------------

struct Registered {
  ibv_mr region{};
  int access = 0;
  uint64_t made = 0;  // the number of earlier registrations
};

struct FakeKernel {
  std::mutex mutex;
  std::map<ibv_mr*, std::unique_ptr<Registered>> live;
  uint64_t made = 0;
  uint64_t calls = 0;
  uint64_t bytes = 0;                    // of live registrations
  uint64_t limit = UINT64_MAX;           // bytes
  const std::byte* read_only = nullptr;  // where read-only memory begins
};

FakeKernel& kernel() {
  static auto& it = *new FakeKernel;
  return it;
}

ibv_mr* fake_register(ibv_pd* domain, void* memory, size_t bytes, int access) {
  const std::lock_guard lock(kernel().mutex);
  ++kernel().calls;
  errno = kernel().bytes + bytes > kernel().limit ? ENOMEM : EFAULT;
  const bool is_read_only = kernel().read_only != nullptr && memory >= kernel().read_only;
  if (errno == ENOMEM || (is_read_only && (access & IBV_ACCESS_LOCAL_WRITE) != 0)) return nullptr;
  auto made = std::make_unique<Registered>();
  made->made = ++kernel().made;
  made->access = access;
  made->region.pd = domain;
  made->region.addr = memory;
  made->region.length = bytes;
  made->region.lkey = static_cast<uint32_t>(2 * made->made);
  made->region.rkey = static_cast<uint32_t>(2 * made->made + 1);
  kernel().bytes += bytes;
  ibv_mr* region = &made->region;
  kernel().live.emplace(region, std::move(made));
  return region;
}

int fake_deregister(ibv_mr* region) {
  const std::lock_guard lock(kernel().mutex);
  const auto it = kernel().live.find(region);
  if (it == kernel().live.end()) {
    ADD_FAILURE() << "deregistered twice";
    return EINVAL;
  }
  kernel().bytes -= region->length;
  kernel().live.erase(it);
  return 0;
}

class RdmaMemoryMap : public ::testing::Test {
 protected:
  void SetUp() override {
    kernel().live.clear();
    kernel().made = kernel().calls = kernel().bytes = 0;
    kernel().limit = UINT64_MAX;
    kernel().read_only = nullptr;
    verbs_.reg_mr = &fake_register;
    verbs_.dereg_mr = &fake_deregister;
  }

  std::unique_ptr<MemoryMap> make(PinnedLimit limit = {}) {
    return std::make_unique<MemoryMap>(verbs_, &domain_, "rxe0", limit);
  }

  // The registration with these keys, or null.
  static const Registered* of(const std::optional<Region>& region) {
    if (!region) return nullptr;
    for (const auto& [key, it] : kernel().live) {
      if (it->region.lkey == region->lkey && it->region.rkey == region->rkey) return it.get();
    }
    ADD_FAILURE() << "keys of no registration";
    return nullptr;
  }

  static bool covers(const Registered* it, const std::byte* begin, size_t bytes) {
    const auto* first = static_cast<const std::byte*>(it->region.addr);
    return begin >= first && begin + bytes <= first + it->region.length;
  }

  // The memory is never accessed; only addresses matter.
  static const std::byte* at(size_t offset) {
    return reinterpret_cast<const std::byte*>(uintptr_t{1} << 40) + offset;
  }

  Verbs verbs_{};
  ibv_pd domain_{};
};

// ---- Ranges and pieces -------------------------------------------------------------------------

TEST_F(RdmaMemoryMap, FindsWhatIsHeldAndNothingElse) {
  const auto map = make();
  EXPECT_FALSE(map->find(at(0), kPage));
  map->hold(at(kPage), 4 * kPage);
  EXPECT_EQ(kernel().made, 0) << "nobody has asked for it yet";
  EXPECT_FALSE(map->find(at(0), kPage));
  EXPECT_FALSE(map->find(at(kPage - 1), 2));
  EXPECT_FALSE(map->find(at(5 * kPage - 1), 2));
  EXPECT_FALSE(map->find(at(5 * kPage), 1));
  EXPECT_FALSE(map->find(at(kPage), 0));
  EXPECT_EQ(kernel().made, 0);
  const Registered* found = of(map->find(at(kPage), 4 * kPage));
  ASSERT_NE(found, nullptr);
  EXPECT_EQ(found->region.addr, at(kPage));
  EXPECT_EQ(found->region.length, 4 * kPage) << "and nothing beside the range";
  EXPECT_EQ(found->access, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ);
  EXPECT_EQ(of(map->find(at(2 * kPage), 10)), found);
  EXPECT_EQ(kernel().made, 1);
  map->release(at(kPage), 4 * kPage);
  EXPECT_TRUE(kernel().live.empty());
  EXPECT_FALSE(map->find(at(kPage), 10));
}

TEST_F(RdmaMemoryMap, LargeRangesAreRegisteredInPiecesAsSegmentsFallIntoThem) {
  const auto map = make();
  const size_t bytes = 100 * kMiB + 12345;
  map->hold(at(7), bytes);
  ASSERT_NE(of(map->find(at(7 + 50 * kMiB), kMiB)), nullptr);
  EXPECT_EQ(kernel().made, 1);
  EXPECT_LE(kernel().bytes, 16 * kMiB);
  for (size_t offset = 0; offset + kMiB <= bytes; offset += 777'777) {
    const Registered* found = of(map->find(at(7 + offset), kMiB));
    ASSERT_NE(found, nullptr) << offset;
    EXPECT_TRUE(covers(found, at(7 + offset), kMiB)) << offset;
    EXPECT_LE(found->region.length, 16 * kMiB);
  }
  EXPECT_TRUE(covers(of(map->find(at(7 + bytes - kMiB), kMiB)), at(7 + bytes - kMiB), kMiB));
  EXPECT_EQ(kernel().made, 7);
  map->release(at(7), bytes);
  EXPECT_TRUE(kernel().live.empty());
}

TEST_F(RdmaMemoryMap, SixteenMebibytesAreOnePiece) {
  const auto map = make();
  map->hold(at(0), 16 * kMiB);
  const auto first = map->find(at(0), kMiB);
  EXPECT_EQ(of(map->find(at(15 * kMiB + 500), kMiB - 500)), of(first));
  EXPECT_EQ(kernel().made, 1);
}

TEST_F(RdmaMemoryMap, TheLastOfSeveralHoldersOfARangeDeregistersIt) {
  const auto map = make();
  for (int i = 0; i < 3; ++i) map->hold(at(0), kMiB);
  const Registered* found = of(map->find(at(0), kPage));
  map->release(at(0), kMiB);
  map->release(at(0), kMiB);
  EXPECT_EQ(of(map->find(at(0), kPage)), found);
  map->release(at(0), kMiB);
  EXPECT_TRUE(kernel().live.empty());
  map->release(at(0), kMiB);
  map->release(at(0), kPage);
  EXPECT_FALSE(map->find(at(0), kPage)) << "a range that nobody holds is left alone";
}

TEST_F(RdmaMemoryMap, WhatIsHeldForLongServesRangesWithin) {
  const auto map = make();
  map->hold(at(0), 8 * kMiB);
  for (int i = 0; i < 10; ++i) {
    map->hold(at(kMiB), kMiB);
    ASSERT_NE(of(map->find(at(kMiB), kMiB)), nullptr);
    map->release(at(kMiB), kMiB);
  }
  EXPECT_EQ(kernel().made, 1);
  EXPECT_EQ(kernel().live.size(), 1);
}

// The owner that still holds the memory may have a segment in flight through the piece.
TEST_F(RdmaMemoryMap, APieceStaysWhileItServesARangeThatOverlaps) {
  const auto map = make();
  map->hold(at(0), 4 * kMiB);
  map->hold(at(kMiB), kMiB);
  const auto keys = map->find(at(kMiB), kPage);
  ASSERT_NE(of(keys), nullptr);
  map->release(at(0), 4 * kMiB);
  EXPECT_NE(of(keys), nullptr);
  EXPECT_FALSE(map->find(at(0), kPage)) << "the rest of it may be gone";
  EXPECT_FALSE(map->find(at(2 * kMiB - kPage), 2 * kPage));
  const Registered* anew = of(map->find(at(kMiB), kPage));
  ASSERT_NE(anew, nullptr);
  EXPECT_EQ(anew->region.length, kMiB) << "the other one may have stale pages";
  map->release(at(kMiB), kMiB);
  EXPECT_TRUE(kernel().live.empty());
}

TEST_F(RdmaMemoryMap, RangesThatComeAndGoAroundAHeldOneLeaveNothingBehind) {
  const auto map = make();
  map->hold(at(kMiB), kMiB);
  ASSERT_NE(of(map->find(at(kMiB), kPage)), nullptr);
  for (int i = 0; i < 10; ++i) {
    map->hold(at(0), 4 * kMiB);
    ASSERT_NE(of(map->find(at(0), kMiB)), nullptr);
    ASSERT_NE(of(map->find(at(kMiB), kMiB)), nullptr);
    map->release(at(0), 4 * kMiB);
    EXPECT_EQ(kernel().live.size(), 1);
  }
}

// ---- Memory that comes and goes ----------------------------------------------------------------

TEST_F(RdmaMemoryMap, MemoryThatIsHeldAgainIsRegisteredAnew) {
  const auto map = make();
  uint64_t last = 0;
  for (int i = 0; i < 100; ++i) {
    map->hold(at(0), kMiB);
    const Registered* found = of(map->find(at(kPage), kPage));
    ASSERT_NE(found, nullptr);
    EXPECT_GT(found->made, last);
    last = found->made;
    map->release(at(0), kMiB);
    EXPECT_TRUE(kernel().live.empty());
  }
}

TEST_F(RdmaMemoryMap, DeregistersEverythingAtItsEnd) {
  auto map = make();
  map->hold(at(0), 40 * kMiB);
  map->hold(at(kMiB), kPage);
  ASSERT_TRUE(map->find(at(kMiB), kPage));
  ASSERT_TRUE(map->find(at(30 * kMiB), kPage));
  map->release(at(0), 40 * kMiB);
  EXPECT_EQ(kernel().live.size(), 1);
  map.reset();
  EXPECT_TRUE(kernel().live.empty());
}

// A plain model of the map. Each call advances the time by one.
class Model {
 public:
  struct Held {
    size_t begin, end;
    int holders;
  };
  struct Transfer {
    size_t begin, end;  // of the range that its owner holds
    std::optional<Region> keys;
  };

  explicit Model(size_t pages) : free_since_(pages, 0) {}

  std::vector<Held>& held() { return held_; }
  std::vector<Transfer>& transfers() { return transfers_; }

  void hold(size_t begin, size_t end) {
    for (Held& it : held_) {
      if (it.begin == begin && it.end == end) return static_cast<void>(++it.holders);
    }
    held_.push_back({begin, end, 1});
  }

  void release(size_t which, uint64_t made) {
    const Held gone = held_[which];
    if (--held_[which].holders > 0) return;
    held_.erase(held_.begin() + static_cast<ptrdiff_t>(which));
    std::erase_if(transfers_,
                  [&](const Transfer& it) { return it.begin == gone.begin && it.end == gone.end; });
    for (size_t page = gone.begin; page < gone.end; ++page) {
      if (!is_held(page, page + 1)) free_since_[page] = made;
    }
  }

  bool is_held(size_t begin, size_t end) const {
    return std::any_of(held_.begin(), held_.end(),
                       [&](const Held& it) { return it.begin <= begin && it.end >= end; });
  }

  // Whether any of the memory was unmapped after `made` registrations.
  bool is_stale(size_t begin, size_t end, uint64_t made) const {
    return std::any_of(free_since_.begin() + static_cast<ptrdiff_t>(begin),
                       free_since_.begin() + static_cast<ptrdiff_t>(end),
                       [&](uint64_t when) { return made <= when; });
  }

 private:
  std::vector<Held> held_;
  std::vector<Transfer> transfers_;
  std::vector<uint64_t> free_since_;  // by page: registrations up to this number are stale
};

class RandomRanges : public RdmaMemoryMap, public ::testing::WithParamInterface<unsigned> {};

TEST_P(RandomRanges, AgreeWithAPlainModel) {
  constexpr size_t kPages = 64;
  constexpr size_t kUnit = kMiB / 2;  // a page of the model; ranges have up to three pieces
  std::mt19937 random(GetParam());
  const auto upto = [&](size_t most) {
    return std::uniform_int_distribution<size_t>(0, most)(random);
  };
  const auto map = make();
  Model model(kPages);
  for (int step = 0; step < 2000; ++step) {
    const size_t begin = upto(kPages - 1);
    const size_t end = begin + 1 + upto(std::min<size_t>(kPages - begin - 1, 47));
    const size_t choice = upto(9);
    if (choice < 2 && model.held().size() < 12) {
      model.hold(begin, end);
      map->hold(at(begin * kUnit), (end - begin) * kUnit);
    } else if (choice < 4 && !model.held().empty()) {
      const size_t which = upto(model.held().size() - 1);
      const auto gone = model.held()[which];
      model.release(which, kernel().made);
      map->release(at(gone.begin * kUnit), (gone.end - gone.begin) * kUnit);
    } else {
      const size_t last = std::min(kPages, begin + 1 + upto(1));
      const size_t bytes = (last - begin) * kUnit;
      const auto keys = map->find(at(begin * kUnit), bytes);
      ASSERT_EQ(keys.has_value(), model.is_held(begin, last)) << step;
      if (!keys) continue;
      const Registered* found = of(keys);
      ASSERT_NE(found, nullptr);
      ASSERT_TRUE(covers(found, at(begin * kUnit), bytes)) << step;
      ASSERT_FALSE(model.is_stale(begin, last, found->made)) << step;
      for (const Model::Held& it : model.held()) {
        if (it.begin <= begin && it.end >= last)
          model.transfers().push_back({it.begin, it.end, keys});
      }
    }
    for (const Model::Transfer& it : model.transfers()) ASSERT_NE(of(it.keys), nullptr) << step;
    if (model.held().empty()) {
      ASSERT_TRUE(kernel().live.empty()) << step;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, RandomRanges, ::testing::Range(1U, 9U));

TEST_F(RdmaMemoryMap, ThreadsHoldAndReleaseWhileOthersFind) {
  const auto map = make();
  map->hold(at(0), kMiB);
  std::vector<std::thread> threads;
  for (size_t i = 1; i <= 3; ++i) {
    threads.emplace_back([&map, i] {
      for (int round = 0; round < 500; ++round) {
        map->hold(at(i * kMiB), kMiB);
        EXPECT_TRUE(map->find(at(i * kMiB), kPage));
        map->release(at(i * kMiB), kMiB);
        EXPECT_FALSE(map->find(at(i * kMiB), kPage));
        EXPECT_TRUE(map->find(at(0), kPage));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(kernel().live.size(), 1);
}

// ---- Limits ------------------------------------------------------------------------------------

TEST_F(RdmaMemoryMap, MemoryThatMayNotBeWrittenToCanBeRead) {
  kernel().read_only = at(kMiB);
  const auto map = make();
  map->hold(at(0), kMiB);
  map->hold(at(kMiB), kMiB);
  EXPECT_EQ(of(map->find(at(kMiB), kPage))->access, IBV_ACCESS_REMOTE_READ);
  EXPECT_EQ(of(map->find(at(0), kPage))->access, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ);
  EXPECT_FALSE(map->find(at(kMiB), kPage)->is_writable);
  EXPECT_TRUE(map->find(at(0), kPage)->is_writable);
}

// The kernel counts locked memory per process.
TEST_F(RdmaMemoryMap, TheMapsOfAProcessShareTheLimit) {
  const auto one = make({.bytes = 2 * kMiB}), other = make({.bytes = 2 * kMiB});
  one->hold(at(0), 2 * kMiB);
  other->hold(at(4 * kMiB), kMiB);
  EXPECT_TRUE(one->find(at(0), kPage));
  EXPECT_FALSE(other->find(at(4 * kMiB), kPage));
  one->release(at(0), 2 * kMiB);
  EXPECT_TRUE(other->find(at(4 * kMiB), kPage));
}

TEST_F(RdmaMemoryMap, RegistersNoMoreThanItMayAndWarnsOnce) {
  testing::LogLines lines;
  const auto map = make({.bytes = 3 * kMiB, .is_named = true});
  for (size_t i = 0; i < 4; ++i) map->hold(at(2 * i * kMiB), kMiB);
  for (size_t i = 0; i < 3; ++i) EXPECT_TRUE(map->find(at(2 * i * kMiB), kPage));
  EXPECT_FALSE(map->find(at(6 * kMiB), kPage));
  EXPECT_FALSE(map->find(at(6 * kMiB), kPage));
  EXPECT_TRUE(map->find(at(0), kPage)) << "registered memory stays registered";
  map->release(at(0), kMiB);
  EXPECT_TRUE(map->find(at(6 * kMiB), kPage));
  const auto told = lines.take();
  ASSERT_EQ(told.size(), 1);
  EXPECT_TRUE(absl::StrContains(told[0], "rxe0: ")) << told[0];
  EXPECT_TRUE(absl::StrContains(told[0], "NEZHA_RDMA_PINNED is 3145728 bytes")) << told[0];
}

TEST_F(RdmaMemoryMap, TheKernelsLimitIsNotAskedAboutAgainUntilSomethingIsReleased) {
  testing::LogLines lines;
  kernel().limit = 3 * kMiB / 2;
  const auto map = make();
  map->hold(at(0), kMiB);
  map->hold(at(2 * kMiB), kMiB);
  EXPECT_TRUE(map->find(at(0), kPage));
  EXPECT_FALSE(map->find(at(2 * kMiB), kPage));
  const uint64_t calls = kernel().calls;
  for (int i = 0; i < 5; ++i) EXPECT_FALSE(map->find(at(2 * kMiB), kPage));
  EXPECT_EQ(kernel().calls, calls);
  map->release(at(0), kMiB);
  EXPECT_TRUE(map->find(at(2 * kMiB), kPage));
  const auto told = lines.take();
  ASSERT_EQ(told.size(), 1);
  EXPECT_TRUE(absl::StrContains(told[0], "ulimit -l")) << told[0];
  EXPECT_TRUE(absl::StrContains(told[0], "LimitMEMLOCK")) << told[0];
}

TEST(RdmaPinnedLimit, IsWhatTheEnvironmentSays) {
  setenv("NEZHA_RDMA_PINNED", "1234567", 1);
  const PinnedLimit named = PinnedLimit::of_process();
  EXPECT_EQ(named.bytes, 1234567);
  EXPECT_TRUE(named.is_named);
  unsetenv("NEZHA_RDMA_PINNED");
  EXPECT_FALSE(PinnedLimit::of_process().is_named);
}

}  // namespace
}  // namespace nezha::rdma
#endif
