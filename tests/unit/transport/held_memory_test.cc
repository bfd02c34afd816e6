// SPDX-License-Identifier: Apache-2.0
#include "transport/held_memory.h"

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <new>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tests/unit/transport/recording_holder.h"
#include "transport/endpoint.h"

namespace nezha {
namespace {

constexpr size_t kLeast = HeldMemory::kLeast;

const std::byte* at(size_t offset) {
  return reinterpret_cast<const std::byte*>(uintptr_t{1} << 40) + offset;
}

class Listening final : public HeldMemory::Listener {
 public:
  std::vector<std::string> take() { return std::exchange(told_, {}); }
  bool has_memory = true;

 private:
  void hold(const std::byte* begin, size_t bytes) override {
    if (!has_memory) throw std::bad_alloc();
    told_.push_back(absl::StrCat("+", begin - at(0), " ", bytes));
  }
  void release(const std::byte* begin, size_t bytes) noexcept override {
    told_.push_back(absl::StrCat("-", begin - at(0), " ", bytes));
  }

  std::vector<std::string> told_;
};

using Told = std::vector<std::string>;

TEST(HeldMemory, TellsOfTheFirstHolderAndTheLast) {
  HeldMemory held;
  Listening listener;
  held.add(&listener);
  held.hold({at(0), kLeast});
  EXPECT_EQ(listener.take(), Told{"+0 16384"});
  held.hold({at(0), kLeast});
  held.release({at(0), kLeast});
  EXPECT_EQ(listener.take(), Told{});
  held.release({at(0), kLeast});
  EXPECT_EQ(listener.take(), Told{"-0 16384"});
  held.release({at(0), kLeast});
  EXPECT_EQ(listener.take(), Told{}) << "nobody holds it";
  held.hold({at(0), kLeast});
  EXPECT_EQ(listener.take(), Told{"+0 16384"});
}

TEST(HeldMemory, RangesThatOverlapAreRangesOfTheirOwn) {
  HeldMemory held;
  Listening listener;
  held.add(&listener);
  held.hold({at(0), 100'000});
  held.hold({at(0), 50'000});
  held.hold({at(10), 50'000});
  held.release({at(0), 50'000});
  EXPECT_EQ(listener.take(), (Told{"+0 100000", "+0 50000", "+10 50000", "-0 50000"}));
}

TEST(HeldMemory, ShortRangesAreNotHeld) {
  HeldMemory held;
  Listening listener;
  held.add(&listener);
  held.hold({at(0), kLeast - 1});
  held.hold({});
  held.release({at(0), kLeast - 1});
  EXPECT_EQ(listener.take(), Told{});
}

TEST(HeldMemory, TellsAListenerOfWhatIsHeldAlready) {
  HeldMemory held;
  held.hold({at(0), kLeast});
  held.hold({at(0), kLeast});
  held.hold({at(99'999), kLeast});
  held.release({at(99'999), kLeast});
  Listening listener;
  held.add(&listener);
  EXPECT_EQ(listener.take(), Told{"+0 16384"}) << "once";
  held.release({at(0), kLeast});
  EXPECT_EQ(listener.take(), Told{});
  held.release({at(0), kLeast});
  EXPECT_EQ(listener.take(), Told{"-0 16384"});
}

TEST(HeldMemory, TellsNoListenerThatIsRemoved) {
  HeldMemory held;
  Listening stays;
  Listening goes;
  held.add(&stays);
  held.add(&goes);
  held.hold({at(0), kLeast});
  goes.take();
  held.remove(&goes);
  held.release({at(0), kLeast});
  EXPECT_EQ(goes.take(), Told{});
  EXPECT_EQ(stays.take(), (Told{"+0 16384", "-0 16384"}));
}

TEST(HeldMemory, AListenerWithoutMemoryHarmsNobody) {
  HeldMemory held;
  Listening poor;
  Listening other;
  held.add(&poor);
  held.add(&other);
  poor.has_memory = false;
  held.hold({at(0), kLeast});
  EXPECT_EQ(other.take(), Told{"+0 16384"});
  held.release({at(0), kLeast});
  EXPECT_EQ(other.take(), Told{"-0 16384"});
}

TEST(HeldMemory, IsThreadSafe) {
  HeldMemory held;
  std::vector<std::thread> threads;
  for (size_t i = 0; i < 3; ++i) {
    threads.emplace_back([&held, i] {
      for (int round = 0; round < 1000; ++round) {
        Listening listener;
        held.add(&listener);
        held.hold({at(i), kLeast});
        held.release({at(i), kLeast});
        held.remove(&listener);
        const Told told = listener.take();
        EXPECT_EQ(std::count(told.begin(), told.end(), absl::StrCat("+", i, " 16384")), 1);
        EXPECT_EQ(std::count(told.begin(), told.end(), absl::StrCat("-", i, " 16384")), 1);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(Hold, HoldsAsLongAsItLives) {
  testing::RecordingHolder holder;
  const std::vector<char> memory(kLeast);
  const auto is_held = [&] { return holder.has(memory.data(), memory.size()); };
  {
    Hold hold(memory.data(), memory.size());
    EXPECT_TRUE(is_held());
    Hold moved = std::move(hold);
    EXPECT_TRUE(is_held());
    moved = Hold();
    EXPECT_FALSE(is_held());
    moved = Hold(memory.data(), memory.size());
    EXPECT_TRUE(is_held());
    moved.release();
    EXPECT_FALSE(is_held());
    moved = Hold(memory.data(), memory.size());
    EXPECT_TRUE(is_held());
  }
  EXPECT_FALSE(is_held());
  EXPECT_EQ(holder.comings(memory.data(), memory.size()), 3);
}

TEST(Hold, AParentsHoldDoesNothingInAChildOfFork) {
  const std::vector<char> memory(kLeast);
  Hold parents(memory.data(), memory.size());
  const pid_t child = fork();
  if (child == 0) {
    testing::RecordingHolder holder;
    const bool is_fresh = !holder.has(memory.data(), memory.size());
    const Hold own(memory.data(), memory.size());
    parents.release();
    _exit(is_fresh && holder.has(memory.data(), memory.size()) ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  testing::RecordingHolder holder;
  EXPECT_TRUE(holder.has(memory.data(), memory.size()));
}

TEST(Hold, AnEndpointsBuffersAreHeldUntilTheAllocatorHasThem) {
  testing::RecordingHolder holder;
  auto endpoint = *Endpoint::create();
  Buffer buffer = endpoint->pool().take(100'000);
  const std::byte* const memory = buffer.data();
  EXPECT_TRUE(holder.has(memory, 131'072)) << "the whole block";
  buffer.reset();
  EXPECT_TRUE(holder.has(memory, 131'072)) << "the pool keeps it";
  endpoint.reset();
  EXPECT_FALSE(holder.has(memory, 131'072));
}

}  // namespace
}  // namespace nezha
