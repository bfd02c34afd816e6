// SPDX-License-Identifier: Apache-2.0
#include "transport/progress.h"

#include <pthread.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <fstream>
#include <functional>
#include <future>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tests/unit/transport/virtual_clock.h"

namespace nezha {
namespace {

constexpr Nanos kLong = 60 * kSecond;

// An object that any thread can make readable.
class Bell final : public EventHandler {
 public:
  Bell(Progress& progress, std::function<void()> rung, Progress::RailThread* thread = nullptr)
      : progress_(progress), rung_(std::move(rung)), fd_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
    EXPECT_TRUE(progress_.add(fd_, this, EPOLLIN, thread).ok());
  }
  ~Bell() override {
    remove();
    close(fd_);
  }
  void ring() const {
    const uint64_t one = 1;
    EXPECT_EQ(write(fd_, &one, sizeof one), static_cast<ssize_t>(sizeof one));
  }
  void remove() {
    if (!removed_) progress_.remove(fd_);
    removed_ = true;
  }
  int fd() const { return fd_; }
  std::function<void()> turn;
  void on_turn() override { turn(); }
  void on_events(uint32_t events) override {
    EXPECT_FALSE(removed_) << "called after it was removed";
    EXPECT_TRUE(events & EPOLLIN);
    uint64_t count = 0;
    EXPECT_EQ(read(fd_, &count, sizeof count), static_cast<ssize_t>(sizeof count));
    rung_();
  }

 private:
  Progress& progress_;
  std::function<void()> rung_;
  int fd_;
  bool removed_ = false;
};

class ProgressTest : public ::testing::Test {
 protected:
  std::unique_ptr<Progress> progress_ = *Progress::create();
};

TEST_F(ProgressTest, AWaiterThatIsDoneReturnsAtOnce) {
  Waiter waiter;
  Progress::Guard guard(*progress_);
  progress_->finish(waiter);
  EXPECT_TRUE(progress_->wait(guard, waiter, now() + kLong));
}

TEST_F(ProgressTest, TheDeadlineIsHonoured) {
  Waiter waiter;
  Progress::Guard guard(*progress_);
  const Nanos deadline = now() + 20 * kMillisecond;
  EXPECT_FALSE(progress_->wait(guard, waiter, deadline));
  EXPECT_GE(now(), deadline);
  EXPECT_FALSE(progress_->wait(guard, waiter, now() - kSecond)) << "one that is past";
}

TEST_F(ProgressTest, AWaiterDrivesEvents) {
  Waiter waiter;
  Progress::Guard guard(*progress_);
  Bell bell(*progress_, [&] { progress_->finish(waiter); });
  bell.ring();
  EXPECT_TRUE(progress_->wait(guard, waiter, now() + kLong));
}

TEST_F(ProgressTest, BlockingWorkRunsAsideAndDelaysNobody) {
  std::promise<void> end;
  Waiter waiter;
  bool is_done = false;
  Progress::Guard guard(*progress_);
  ASSERT_TRUE(progress_
                  ->run_aside([ended = end.get_future().share()] { ended.wait(); },
                              [&] {
                                is_done = true;
                                progress_->finish(waiter);
                              })
                  .ok());
  Alarm alarm(*progress_, [&] {
    EXPECT_FALSE(is_done);
    end.set_value();
  });
  alarm.start(now());
  EXPECT_TRUE(progress_->wait(guard, waiter, now() + kLong));
  EXPECT_TRUE(is_done);
}

TEST_F(ProgressTest, WhatRunsAsideIsOverBeforeProgressEnds) {
  std::promise<void> end;
  bool is_done = false;
  Progress& it = *progress_;
  {
    Progress::Guard guard(*progress_);
    ASSERT_TRUE(progress_
                    ->run_aside([ended = end.get_future().share()] { ended.wait(); },
                                [&] {
                                  // Callbacks that are deferred at the end run, too.
                                  it.defer([&] { is_done = true; });
                                })
                    .ok());
    end.set_value();  // the thread waits for the lock, which this thread holds
  }
  progress_.reset();
  EXPECT_TRUE(is_done);
}

char state_of(pid_t thread) {  // as in /proc: S is sleeping
  std::ifstream file(absl::StrCat("/proc/self/task/", thread, "/stat"));
  std::string text;
  std::getline(file, text);
  return text.at(text.rfind(')') + 2);  // what precedes it is the thread's name
}

// With a virtual clock, time passes only through what this thread does: polling takes time, and
// sleeping does not.
TEST_F(ProgressTest, AWaiterThatDoesNotPollSleepsAtOnce) {
  testing::VirtualClock its_time;
  Waiter waiter;
  Progress::Guard guard(*progress_);
  Bell bell(*progress_, [&] { progress_->finish(waiter); });
  std::thread ringer([&, driver = gettid()] {
    while (state_of(driver) != 'S') std::this_thread::yield();
    bell.ring();
  });
  const Nanos begin = now();
  EXPECT_TRUE(progress_->wait(guard, waiter, begin + kLong, [] { return Pace{.polls = false}; }));
  EXPECT_LT(now() - begin, 50 * kMicrosecond);  // half of NEZHA_POLL's default
  ringer.join();
}

// Reports whether it has something to read only when it is asked.
class QuietHandler final : public EventHandler {
 public:
  explicit QuietHandler(
      std::function<bool()> looked_at, std::function<void()> told = [] {})
      : looked_at_(std::move(looked_at)), told_(std::move(told)) {}
  void on_events(uint32_t) override { told_(); }
  bool look() override { return looked_at_(); }

 private:
  std::function<bool()> looked_at_;
  std::function<void()> told_;
};

// The waiters' time passes only when they read the clock, so they keep polling however long they
// wait for a core.
class KeenWaiterTest : public ProgressTest {
 protected:
  static constexpr Nanos kSoon = 150 * kMicrosecond;  // longer than NEZHA_POLL's default

  bool wait_for(Progress::Guard& guard, Waiter& waiter) {
    return progress_->wait(guard, waiter, now() + kSoon, [] { return Pace{.is_keen = true}; });
  }

 private:
  testing::VirtualClock its_time_;
};

TEST_F(KeenWaiterTest, LooksWhereSomethingCameLast) {
  Waiter waiter;
  Progress::Guard guard(*progress_);
  QuietHandler handler([&] {
    progress_->finish(waiter);
    return true;
  });
  const int fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  ASSERT_TRUE(progress_->add(fd, &handler, EPOLLOUT | EPOLLET).ok());  // one event
  EXPECT_TRUE(wait_for(guard, waiter));
  progress_->remove(fd);
  close(fd);
}

// Peers answer operation after operation in the same order.
TEST_F(KeenWaiterTest, LooksOnlyWhereTheNextThingCameBefore) {
  Waiter* waiter = nullptr;
  Progress::Guard guard(*progress_);
  std::array<int, 3> looks{};
  std::list<QuietHandler> handlers;
  std::array<int, 3> fds;
  for (size_t i = 0; i < fds.size(); ++i) {
    const auto finish = [this, &waiter] { progress_->finish(*waiter); };
    handlers.emplace_back(
        [finish, &looks, i] {
          if (++looks[i] == 3) finish();
          return true;
        },
        finish);
    fds[i] = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    ASSERT_TRUE(progress_->add(fds[i], &handlers.back(), EPOLLIN | EPOLLET).ok());
  }
  for (const size_t i : {0, 1, 2, 0, 1}) {  // one at a time, since a round has no order
    const uint64_t one = 1;
    ASSERT_EQ(write(fds[i], &one, sizeof one), static_cast<ssize_t>(sizeof one));
    Waiter told;
    waiter = &told;
    EXPECT_TRUE(progress_->wait(guard, told, now() + kSoon));
  }
  Waiter keen;
  waiter = &keen;
  EXPECT_TRUE(wait_for(guard, keen));
  EXPECT_EQ(looks, (std::array{2, 2, 3})) << "third, first, second, and so on";
  for (const int fd : fds) {
    progress_->remove(fd);
    close(fd);
  }
}

TEST_F(KeenWaiterTest, IsToldOfEventsElsewhereSoonerIfItFindsNothing) {
  // Returns how often the waiter looks until it is told of the event that arrived at the first
  // look. `finds`: whether a look finds something.
  const auto looks_until_told = [this](bool (*finds)(int look)) {
    progress_ = *Progress::create();
    Waiter waiter;
    Progress::Guard guard(*progress_);
    Bell bell(*progress_, [&] { progress_->finish(waiter); });
    int looks = 0;
    QuietHandler handler([&] {
      if (looks == 0) bell.ring();
      return finds(looks++);
    });
    const int fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    EXPECT_TRUE(progress_->add(fd, &handler, EPOLLOUT | EPOLLET).ok());
    EXPECT_TRUE(wait_for(guard, waiter));
    progress_->remove(fd);
    close(fd);
    return looks;
  };
  EXPECT_EQ(looks_until_told([](int) { return false; }), 3);
  EXPECT_EQ(looks_until_told([](int look) { return look % 3 == 2; }), 8);
  EXPECT_EQ(looks_until_told([](int) { return true; }), 8);
}

TEST_F(KeenWaiterTest, IsToldOfEventsElsewhereThoughEachFindsItsOwnAtOnce) {
  Waiter* waiter = nullptr;
  Progress::Guard guard(*progress_);
  int rings = 0;
  Bell bell(*progress_, [&] {
    ++rings;
    progress_->finish(*waiter);
  });
  QuietHandler handler([&] {
    progress_->finish(*waiter);
    return true;
  });
  const int fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  ASSERT_TRUE(progress_->add(fd, &handler, EPOLLOUT | EPOLLET).ok());
  const auto wait = [&] {
    Waiter next;
    waiter = &next;
    EXPECT_TRUE(wait_for(guard, next));
  };
  wait();  // the first is told of the descriptor
  bell.ring();
  for (int i = 0; i < 9 && rings == 0; ++i) wait();
  EXPECT_EQ(rings, 1);
  progress_->remove(fd);
  close(fd);
}

TEST_F(ProgressTest, ARestingWaiterHandlesMissedEventsTogether) {
  constexpr int kRings = 3;
  Waiter waiter;
  std::atomic<int> rings{0};
  int calls = 0;
  Progress::Guard guard(*progress_);
  Bell bell(*progress_, [&] {
    ++calls;
    if (rings == kRings) progress_->finish(waiter);
  });
  std::thread ringer;
  Bell first(*progress_, [&] {
    ringer = std::thread([&] {
      for (int i = 0; i < kRings; ++i) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
        ++rings;
        bell.ring();
      }
    });
  });
  first.ring();
  EXPECT_TRUE(progress_->wait(guard, waiter, now() + kLong,
                              [] { return Pace{.polls = false, .rest = kSecond / 2}; }));
  ringer.join();
  EXPECT_EQ(calls, 1);
}

TEST_F(ProgressTest, AWaiterRestsNotBeyondItsDeadline) {
  Waiter waiter;
  Progress::Guard guard(*progress_);
  Bell bell(*progress_, [] {});
  bell.ring();
  const Nanos deadline = now() + 20 * kMillisecond;
  EXPECT_FALSE(
      progress_->wait(guard, waiter, deadline, [] { return Pace{.polls = false, .rest = kLong}; }));
  EXPECT_LT(now(), deadline + kLong / 2);
}

TEST_F(ProgressTest, OneOfManyWaitersDrivesAndHandsOn) {
  constexpr int kThreads = 8;
  std::vector<std::unique_ptr<Bell>> bells;
  std::vector<Waiter> waiters(kThreads);
  {
    Progress::Guard guard(*progress_);
    for (auto& waiter : waiters) {
      bells.push_back(std::make_unique<Bell>(*progress_, [&] { progress_->finish(waiter); }));
    }
  }
  std::atomic<int> waiting{0}, done{0};
  std::vector<std::thread> threads;
  threads.reserve(waiters.size());
  for (auto& waiter : waiters) {
    threads.emplace_back([&] {
      Progress::Guard guard(*progress_);
      ++waiting;
      EXPECT_TRUE(progress_->wait(guard, waiter, now() + kLong));
      ++done;
    });
  }
  while (waiting < kThreads) std::this_thread::yield();
  // Rings each bell after the previous waiter has returned, so the thread that drove has left by
  // then.
  for (int i = 0; i < kThreads; ++i) {
    bells[static_cast<size_t>(i)]->ring();
    while (done <= i) std::this_thread::yield();
  }
  for (auto& thread : threads) thread.join();
  Progress::Guard guard(*progress_);
  bells.clear();
}

TEST_F(ProgressTest, AWaiterThatTimesOutHandsOn) {
  Waiter never, rung;
  std::unique_ptr<Bell> bell, late;
  testing::VirtualClock* clock = nullptr;  // the first thread's: its time passes when `late` rings
  {
    Progress::Guard guard(*progress_);
    bell = std::make_unique<Bell>(*progress_, [&] { progress_->finish(rung); });
    late = std::make_unique<Bell>(*progress_, [&] { clock->advance(kLong); });
  }
  std::atomic<int> entered{0};
  std::thread first([&] {
    testing::VirtualClock its_time;
    Progress::Guard guard(*progress_);
    clock = &its_time;
    ++entered;
    EXPECT_FALSE(progress_->wait(guard, never, now() + kLong));
  });
  while (entered < 1) std::this_thread::yield();
  std::thread second([&] {
    Progress::Guard guard(*progress_);
    ++entered;
    EXPECT_TRUE(progress_->wait(guard, rung, now() + kLong));
  });
  while (entered < 2) std::this_thread::yield();
  // If this thread gets the lock, the second thread sleeps, because the first one drives.
  { Progress::Guard guard(*progress_); }
  late->ring();
  first.join();
  bell->ring();
  second.join();
  Progress::Guard guard(*progress_);
  bell.reset();
  late.reset();
}

TEST_F(ProgressTest, TheThreadDrivesWhenNobodyWaits) {
  std::atomic<int> rings{0};
  std::unique_ptr<Bell> bell;
  {
    Progress::Guard guard(*progress_);
    bell = std::make_unique<Bell>(*progress_, [&] { ++rings; });
  }
  for (int i = 1; i <= 5; ++i) {
    bell->ring();
    while (rings < i) std::this_thread::yield();
  }
  // The thread also drives after somebody has waited.
  {
    Waiter waiter;
    Progress::Guard guard(*progress_);
    EXPECT_FALSE(progress_->wait(guard, waiter, now() + kMillisecond));
  }
  bell->ring();
  while (rings < 6) std::this_thread::yield();
  Progress::Guard guard(*progress_);
  bell.reset();
}

TEST_F(ProgressTest, TheThreadRunsTimersThatAreStartedWhileItSleeps) {
  std::atomic<int> fired{0};
  std::unique_ptr<Alarm> timer;
  {
    Progress::Guard guard(*progress_);
    timer = std::make_unique<Alarm>(*progress_, [&] { ++fired; });
  }
  for (int i = 1; i <= 3; ++i) {
    Nanos due = 0;
    {
      Progress::Guard guard(*progress_);
      due = now() + 2 * kMillisecond;
      timer->start(due);
    }
    while (fired < i) std::this_thread::yield();
    EXPECT_GE(now(), due);
  }
  Progress::Guard guard(*progress_);
  EXPECT_FALSE(timer->armed());
  timer.reset();
}

TEST_F(ProgressTest, TimersFireInTheWaitAndOnceOnly) {
  Waiter waiter;
  Progress::Guard guard(*progress_);
  int early = 0, late = 0;
  Alarm first(*progress_, [&] { ++early; });
  Alarm last(*progress_, [&] {
    ++late;
    progress_->finish(waiter);
  });
  first.start(now() + kMillisecond);
  last.start(now() + 10 * kMillisecond);
  EXPECT_TRUE(progress_->wait(guard, waiter, now() + kLong));
  EXPECT_EQ(early, 1);
  EXPECT_EQ(late, 1);
  EXPECT_FALSE(first.armed());
}

TEST_F(ProgressTest, TimersMayStartAndCancelOthers) {
  Waiter waiter;
  Progress::Guard guard(*progress_);
  int wrong = 0, rounds = 0;
  Alarm cancelled(*progress_, [&] { ++wrong; });
  std::unique_ptr<Alarm> again;
  again = std::make_unique<Alarm>(*progress_, [&] {
    cancelled.cancel();
    if (++rounds == 3) return progress_->finish(waiter);
    again->start(now() + kMillisecond);
  });
  const Nanos time = now();
  again->start(time);
  cancelled.start(time + kMillisecond / 2);
  EXPECT_TRUE(progress_->wait(guard, waiter, now() + kLong));
  EXPECT_EQ(rounds, 3);
  // Starting again replaces the deadline.
  cancelled.start(now());
  cancelled.start(now() + kLong);
  Waiter other;
  EXPECT_FALSE(progress_->wait(guard, other, now() + 2 * kMillisecond));
  EXPECT_EQ(wrong, 0);
  EXPECT_TRUE(cancelled.armed());
}

TEST_F(ProgressTest, HandlersThatWereRemovedAreNotCalled) {
  Waiter waiter;
  Progress::Guard guard(*progress_);
  // Both bells are ready at once; the first that is called removes the other. Deferred callbacks
  // run when the events at hand have been handled.
  int calls = 0;
  std::unique_ptr<Bell> one, two;
  const auto rung = [&](std::unique_ptr<Bell>& other) {
    ++calls;
    other.reset();
    progress_->defer([&] { progress_->finish(waiter); });
  };
  one = std::make_unique<Bell>(*progress_, [&] { rung(two); });
  two = std::make_unique<Bell>(*progress_, [&] { rung(one); });
  one->ring();
  two->ring();
  EXPECT_TRUE(progress_->wait(guard, waiter, now() + kLong));
  EXPECT_EQ(calls, 1);
}

TEST_F(ProgressTest, EventsOfAReusedDescriptorNumberAreDropped) {
  Waiter waiter;
  Progress::Guard guard(*progress_);
  std::unique_ptr<Bell> one, two, heir;
  int calls = 0, heirs_calls = 0;
  const auto replace = [&](std::unique_ptr<Bell>& other) {
    ++calls;
    other.reset();  // its number is the lowest free one
    heir = std::make_unique<Bell>(*progress_, [&] { ++heirs_calls; });
    progress_->defer([&] { progress_->finish(waiter); });
  };
  one = std::make_unique<Bell>(*progress_, [&] { replace(two); });
  two = std::make_unique<Bell>(*progress_, [&] { replace(one); });
  one->ring();
  two->ring();
  EXPECT_TRUE(progress_->wait(guard, waiter, now() + kLong));
  EXPECT_EQ(calls, 1);
  EXPECT_EQ(heirs_calls, 0);
}

TEST_F(ProgressTest, DeferredWorkRunsBeforeTheWaitSleepsAndMayDeferMore) {
  Waiter waiter;
  Progress::Guard guard(*progress_);
  std::vector<int> order;
  progress_->defer([&] {
    order.push_back(1);
    progress_->defer([&] {
      order.push_back(3);
      progress_->finish(waiter);
    });
  });
  progress_->defer([&] { order.push_back(2); });
  EXPECT_TRUE(progress_->wait(guard, waiter, now() + kLong));
  EXPECT_EQ(order, (std::vector<int>{1, 2, 3}));
  progress_->defer([&] { order.push_back(4); });
  progress_->run_deferred();
  EXPECT_EQ(order.back(), 4);
}

TEST_F(ProgressTest, AThreadThatWantsTheLockGetsItFromABusyDriver) {
  Waiter waiter;
  std::atomic<bool> driving{false};
  std::thread driver([&] {
    Progress::Guard guard(*progress_);
    // The bell rings again and again.
    std::unique_ptr<Bell> busy;
    busy = std::make_unique<Bell>(*progress_, [&] {
      driving = true;
      busy->ring();
    });
    busy->ring();
    EXPECT_TRUE(progress_->wait(guard, waiter, now() + kLong));
  });
  while (!driving) std::this_thread::yield();
  for (int i = 0; i < 100; ++i) Progress::Guard guard(*progress_);
  {
    Progress::Guard guard(*progress_);
    progress_->finish(waiter);
  }
  driver.join();
}

// ---- Pollers -----------------------------------------------------------------------------------

// A queue in memory. Its descriptor reports new items only while it is armed, and polling disarms
// it.
class PolledQueue final : public Poller, EventHandler {
 public:
  PolledQueue(Progress& progress, std::function<void(int)> taken)
      : progress_(progress), taken_(std::move(taken)), fd_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
    EXPECT_TRUE(progress_.add(fd_, this, EPOLLIN).ok());
    progress_.add_poller(this);
  }
  ~PolledQueue() override {
    progress_.remove_poller(this);
    progress_.remove(fd_);
    close(fd_);
  }
  PolledQueue(const PolledQueue&) = delete;
  PolledQueue& operator=(const PolledQueue&) = delete;

  void put(int item) {  // thread-safe
    const std::lock_guard lock(mutex_);
    items_.push_back(item);
    if (!is_armed_) return;
    const uint64_t one = 1;
    EXPECT_EQ(write(fd_, &one, sizeof one), static_cast<ssize_t>(sizeof one));
  }
  bool poll() override {
    ++polls;
    std::vector<int> items;
    {
      const std::lock_guard lock(mutex_);
      is_armed_ = false;
      items.swap(items_);
    }
    for (const int item : items) taken_(item);
    return !items.empty();
  }
  bool arm() override {
    before_arm();
    bool is_empty = false;
    {
      const std::lock_guard lock(mutex_);
      is_armed_ = true;
      is_empty = items_.empty();
    }
    after_arm();
    return is_empty;
  }

  std::atomic<int> polls{0};
  std::function<void()> before_arm = [] {};
  std::function<void()> after_arm = [] {};

 private:
  void on_events(uint32_t) override {
    uint64_t count = 0;
    EXPECT_EQ(read(fd_, &count, sizeof count), static_cast<ssize_t>(sizeof count));
  }

  Progress& progress_;
  std::function<void(int)> taken_;
  int fd_;
  std::mutex mutex_;
  bool is_armed_ = false;
  std::vector<int> items_;
};

// The deadlines of these tests are distant, so a missed notification delays the test until then.
TEST_F(ProgressTest, AWaiterIsWokenByWhatComesToAPollerInItsSleep) {
  Waiter waiter;
  Progress::Guard guard(*progress_);
  PolledQueue queue(*progress_, [&](int) { progress_->finish(waiter); });
  std::thread putter([&, driver = gettid()] {
    while (state_of(driver) != 'S') std::this_thread::yield();
    queue.put(0);
  });
  EXPECT_TRUE(progress_->wait(guard, waiter, now() + kLong, [] { return Pace{.polls = false}; }));
  putter.join();
}

TEST_F(ProgressTest, WhatComesToAPollerAsItIsArmedIsNoticed) {
  for (const bool is_before : {true, false}) {
    Waiter waiter;
    Progress::Guard guard(*progress_);
    PolledQueue queue(*progress_, [&](int) { progress_->finish(waiter); });
    const auto put = [&, has_put = false]() mutable {
      if (!has_put) queue.put(0);
      has_put = true;
    };
    (is_before ? queue.before_arm : queue.after_arm) = put;
    EXPECT_TRUE(progress_->wait(guard, waiter, now() + kLong, [] { return Pace{.polls = false}; }))
        << is_before;
  }
}

TEST_F(ProgressTest, WhatAPollerThrowsAsItIsArmedGoesToTheListener) {
  Waiter waiter;
  Progress::Guard guard(*progress_);
  int told = 0;
  progress_->set_exception_listener([&](const absl::Status&, bool) {
    if (++told == 2) progress_->finish(waiter);
  });
  PolledQueue queue(*progress_, [](int) {});
  queue.before_arm = [&] {
    if (told < 2) throw std::runtime_error("no");
  };
  EXPECT_TRUE(progress_->wait(guard, waiter, now() + kLong, [] { return Pace{.polls = false}; }));
}

// Deferred callbacks run both in a round and before a sleep.
TEST_F(ProgressTest, WhatAPollerDefersRunsBeforeAnybodySleeps) {
  for (const bool polls : {true, false}) {
    Waiter waiter;
    Progress::Guard guard(*progress_);
    PolledQueue queue(*progress_,
                      [&](int) { progress_->defer([&] { progress_->finish(waiter); }); });
    queue.put(0);
    EXPECT_TRUE(
        progress_->wait(guard, waiter, now() + kLong, [polls] { return Pace{.polls = polls}; }));
  }
}

TEST_F(ProgressTest, NothingIsPolledWhileNothingComes) {
  constexpr int kFew = 20;
  std::unique_ptr<PolledQueue> queue;
  {
    Waiter waiter;
    Progress::Guard guard(*progress_);
    queue = std::make_unique<PolledQueue>(*progress_, [](int) {});
    EXPECT_FALSE(progress_->wait(guard, waiter, now() + 50 * kMillisecond,
                                 [] { return Pace{.polls = false}; }));
    EXPECT_LT(queue->polls, kFew);
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(50));  // the thread drives
  EXPECT_LT(queue->polls, 2 * kFew);
  Progress::Guard guard(*progress_);
  queue.reset();
}

TEST_F(ProgressTest, TheThreadPollsWhenNobodyWaitsAlsoAfterSomebodyHas) {
  std::atomic<int> taken{0};
  Waiter* waiter = nullptr;
  std::unique_ptr<PolledQueue> queue;
  {
    Progress::Guard guard(*progress_);
    queue = std::make_unique<PolledQueue>(*progress_, [&](int) {
      ++taken;
      if (waiter != nullptr) progress_->finish(*waiter);
    });
  }
  for (int i = 0; i < 20; i += 2) {
    queue->put(0);
    while (taken < i + 1) std::this_thread::yield();
    // This is longer than the thread stays away, so it has armed the queue and sleeps.
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    Progress::Guard guard(*progress_);
    Waiter next;
    waiter = &next;
    queue->put(0);
    EXPECT_TRUE(progress_->wait(guard, next, now() + kLong));
    waiter = nullptr;
  }
  Progress::Guard guard(*progress_);
  queue.reset();
}

TEST_F(ProgressTest, OneOfManyWaitersPollsForAll) {
  constexpr size_t kThreads = 8;
  std::vector<Waiter> waiters(kThreads);
  std::unique_ptr<PolledQueue> queue;
  {
    Progress::Guard guard(*progress_);
    queue = std::make_unique<PolledQueue>(
        *progress_, [&](int item) { progress_->finish(waiters[static_cast<size_t>(item)]); });
  }
  std::atomic<size_t> waiting{0}, done{0};
  std::vector<std::thread> threads;
  threads.reserve(kThreads);
  for (Waiter& waiter : waiters) {
    threads.emplace_back([&] {
      Progress::Guard guard(*progress_);
      ++waiting;
      EXPECT_TRUE(progress_->wait(guard, waiter, now() + kLong));
      ++done;
    });
  }
  while (waiting < kThreads) std::this_thread::yield();
  for (size_t i = 0; i < kThreads; ++i) {
    queue->put(static_cast<int>(i));
    while (done <= i) std::this_thread::yield();
  }
  for (auto& thread : threads) thread.join();
  Progress::Guard guard(*progress_);
  queue.reset();
}

TEST_F(ProgressTest, APollerThatComesWhileAWaiterSleepsIsArmed) {
  Waiter waiter;
  std::unique_ptr<PolledQueue> queue;
  std::atomic<bool> has_entered{false};
  std::thread sleeper([&] {
    Progress::Guard guard(*progress_);
    has_entered = true;
    EXPECT_TRUE(progress_->wait(guard, waiter, now() + kLong, [] { return Pace{.polls = false}; }));
  });
  while (!has_entered) std::this_thread::yield();
  std::atomic<bool> is_armed{false};
  {
    Progress::Guard guard(*progress_);  // the waiter sleeps
    queue = std::make_unique<PolledQueue>(*progress_, [&](int) { progress_->finish(waiter); });
    queue->after_arm = [&] { is_armed = true; };
  }
  const Nanos deadline = now() + kLong / 2;
  while (!is_armed && now() < deadline) std::this_thread::yield();
  EXPECT_TRUE(is_armed);
  queue->put(0);
  sleeper.join();
  Progress::Guard guard(*progress_);
  queue.reset();
}

TEST_F(ProgressTest, APollerMayBeRemovedAsItIsPolled) {
  Waiter waiter;
  Progress::Guard guard(*progress_);
  int calls = 0;
  std::unique_ptr<PolledQueue> first, second;
  first = std::make_unique<PolledQueue>(*progress_, [&](int) {
    ++calls;
    progress_->remove_poller(first.get());
  });
  second = std::make_unique<PolledQueue>(*progress_, [&](int) { progress_->finish(waiter); });
  first->put(0);
  second->put(0);
  EXPECT_TRUE(progress_->wait(guard, waiter, now() + kLong));
  first->put(0);
  Waiter never;
  EXPECT_FALSE(progress_->wait(guard, never, now() + kMillisecond));
  EXPECT_EQ(calls, 1);
}

TEST_F(KeenWaiterTest, PollsBeforeItIsToldOfAnythingElse) {
  Waiter waiter;
  Progress::Guard guard(*progress_);
  int rings = 0;
  Bell bell(*progress_, [&] { ++rings; });
  PolledQueue queue(*progress_, [&](int) { progress_->finish(waiter); });
  bell.ring();
  queue.put(0);
  EXPECT_TRUE(wait_for(guard, waiter));
  EXPECT_EQ(rings, 0) << "it asked epoll";
}

// ---- Rails' own threads ------------------------------------------------------------------------

// Two rail threads, on the first and on the last of the allowed cores.
class RailThreadTest : public ProgressTest {
 protected:
  RailThreadTest() {
    Progress::Guard guard(*progress_);
    const Cpus all = allowed_cpus();
    for (size_t i = 0; i < 2; ++i) {
      cpus_[i] = {i == 0 ? *all.begin() : *all.rbegin()};
      threads_[i] = *progress_->start_rail_thread(i == 0 ? "eth0" : "enp129s0f1np1", cpus_[i]);
    }
  }
  std::array<Cpus, 2> cpus_;
  std::array<Progress::RailThread*, 2> threads_{};
};

TEST_F(RailThreadTest, ItHandlesItsEventsOnItsCores) {
  Waiter waiter;
  std::array<std::string, 2> names;
  std::array<Cpus, 2> cpus;
  Progress::Guard guard(*progress_);
  std::vector<std::unique_ptr<Bell>> bells;
  size_t rings = 0;
  for (size_t i = 0; i < 2; ++i) {
    const auto rung = [&, i] {
      std::array<char, 16> name{};
      pthread_getname_np(pthread_self(), name.data(), name.size());
      names[i] = name.data();
      cpus[i] = allowed_cpus();
      if (++rings == 2) progress_->finish(waiter);
    };
    bells.push_back(std::make_unique<Bell>(*progress_, rung, threads_[i]));
    bells.back()->ring();
  }
  EXPECT_TRUE(progress_->wait(guard, waiter, now() + kLong));
  EXPECT_EQ(names[0], "nezha-eth0");
  EXPECT_EQ(names[1], "nezha-29s0f1np1");
  EXPECT_EQ(cpus, cpus_);
  bells.clear();
}

TEST_F(RailThreadTest, ItHandlesEventsWhetherSomebodyWaitsOrNot) {
  std::atomic<int> rings{0};
  std::unique_ptr<Bell> bell;
  {
    Progress::Guard guard(*progress_);
    bell = std::make_unique<Bell>(
        *progress_, [&] { ++rings; }, threads_[0]);
  }
  for (int i = 1; i <= 100; ++i) {
    bell->ring();
    while (rings < i) std::this_thread::yield();
  }
  Progress::Guard guard(*progress_);
  bell.reset();
}

// The deadline is distant; a lost wake-up delays the test until then.
TEST_F(RailThreadTest, ItWakesAWaiterThatSleeps) {
  Waiter waiter;
  Progress::Guard guard(*progress_);
  const Nanos deadline = now() + kLong;
  const auto bell = std::make_unique<Bell>(
      *progress_, [&] { progress_->finish(waiter); }, threads_[0]);
  Alarm timer(*progress_, [&] { bell->ring(); });  // after the waiter has polled
  timer.start(now() + 10 * kMillisecond);
  EXPECT_TRUE(progress_->wait(guard, waiter, deadline));
  EXPECT_LT(now(), deadline);
}

TEST_F(RailThreadTest, ATimerThatItStartsIsDueWhileTheWaiterSleeps) {
  Waiter waiter;
  Progress::Guard guard(*progress_);
  const Nanos deadline = now() + kLong;
  Alarm due(*progress_, [&] { progress_->finish(waiter); });
  const auto bell = std::make_unique<Bell>(
      *progress_, [&] { due.start(now() + kMillisecond); }, threads_[0]);
  Alarm first(*progress_, [&] { bell->ring(); });
  first.start(now() + 10 * kMillisecond);
  EXPECT_TRUE(progress_->wait(guard, waiter, deadline));
  EXPECT_LT(now(), deadline);
}

// Each ring passes from one rail's thread to the other's, and from there to a waiter.
TEST_F(RailThreadTest, NoWakeUpIsLost) {
  constexpr int kRounds = 2000;
  Progress::Guard guard(*progress_);
  const Nanos deadline = now() + kLong;
  for (int i = 0; i < kRounds; ++i) {
    Waiter waiter;
    const auto last = std::make_unique<Bell>(
        *progress_, [&] { progress_->finish(waiter); }, threads_[1]);
    const auto first = std::make_unique<Bell>(
        *progress_, [&] { progress_->defer([&] { last->ring(); }); }, threads_[0]);
    first->ring();
    ASSERT_TRUE(progress_->wait(guard, waiter, deadline));
  }
  EXPECT_LT(now(), deadline);
}

TEST_F(RailThreadTest, OthersGetTheLockThoughItsEventsHaveNoEnd) {
  std::vector<std::unique_ptr<Bell>> busy(2);
  std::atomic<int> rings{0};
  {
    Progress::Guard guard(*progress_);
    for (size_t i = 0; i < 2; ++i) {
      const auto again = [&, i] {
        ++rings;
        busy[i]->ring();
      };
      busy[i] = std::make_unique<Bell>(*progress_, again, threads_[i]);
      busy[i]->ring();
    }
  }
  while (rings < 100) std::this_thread::yield();
  for (int i = 0; i < 100; ++i) Progress::Guard guard(*progress_);
  Progress::Guard guard(*progress_);
  busy.clear();
}

TEST_F(RailThreadTest, CoresThatAreNotThereAreAnErrorThatNamesThem) {
  Progress::Guard guard(*progress_);
  const auto thread = progress_->start_rail_thread("eth2", {0, 8191});
  EXPECT_TRUE(absl::IsInvalidArgument(thread.status())) << thread.status();
  EXPECT_TRUE(absl::StrContains(thread.status().message(), "0,8191")) << thread.status();
}

// ---- Rails' threads that are called ------------------------------------------------------------

class CalledThreadTest : public ProgressTest {
 protected:
  CalledThreadTest() {
    Progress::Guard guard(*progress_);
    thread_ = progress_->add_rail_thread("eth0");
  }
  // The name of the thread that handles an event of the bell.
  std::string who_handles(Progress::Guard& guard, Bell& bell) {
    Waiter waiter;
    std::array<char, 16> name{};
    handled_ = [&] {
      pthread_getname_np(pthread_self(), name.data(), name.size());
      progress_->finish(waiter);
    };
    bell.ring();
    EXPECT_TRUE(progress_->wait(guard, waiter, now() + kLong));
    return name.data();
  }
  std::function<void()> handled_;
  Progress::RailThread* thread_ = nullptr;
};

TEST_F(CalledThreadTest, ItHandlesTheEventsOfWhatItIsCalledForUntilNothingComes) {
  Progress::Guard guard(*progress_);
  progress_->set_most_threads(1);
  Bell bell(
      *progress_, [this] { handled_(); }, thread_);
  Bell other(
      *progress_, [this] { handled_(); }, thread_);
  EXPECT_NE(who_handles(guard, bell), "nezha-eth0");
  progress_->call_thread(bell.fd());
  EXPECT_TRUE(progress_->is_with_thread(bell.fd()));
  EXPECT_FALSE(progress_->is_with_thread(other.fd()));
  EXPECT_EQ(who_handles(guard, bell), "nezha-eth0");
  EXPECT_NE(who_handles(guard, other), "nezha-eth0");
  while (progress_->is_with_thread(bell.fd())) {
    Waiter never;
    progress_->wait(guard, never, now() + kMillisecond);
  }
  EXPECT_NE(who_handles(guard, bell), "nezha-eth0");
  progress_->call_thread(bell.fd());
  EXPECT_EQ(who_handles(guard, bell), "nezha-eth0") << "called again";
}

TEST_F(CalledThreadTest, WithoutCoresItNeverStarts) {
  Progress::Guard guard(*progress_);
  Bell bell(
      *progress_, [this] { handled_(); }, thread_);
  progress_->call_thread(bell.fd());
  EXPECT_FALSE(progress_->is_with_thread(bell.fd()));
  EXPECT_NE(who_handles(guard, bell), "nezha-eth0");
}

TEST_F(CalledThreadTest, NoMoreThreadsStartThanAllowed) {
  Progress::Guard guard(*progress_);
  progress_->set_most_threads(1);
  Progress::RailThread* second = progress_->add_rail_thread("eth1");
  Bell first(
      *progress_, [this] { handled_(); }, thread_);
  Bell last(
      *progress_, [this] { handled_(); }, second);
  progress_->call_thread(first.fd());
  progress_->call_thread(last.fd());
  EXPECT_TRUE(progress_->is_with_thread(first.fd()));
  EXPECT_FALSE(progress_->is_with_thread(last.fd()));
}

TEST_F(CalledThreadTest, ItGivesUncalledDescriptorsBackDespiteTheirEvents) {
  Progress::Guard guard(*progress_);
  progress_->set_most_threads(1);
  std::unique_ptr<Bell> bell;
  bell = std::make_unique<Bell>(
      *progress_, [&] { bell->ring(); }, thread_);
  progress_->call_thread(bell->fd());
  bell->ring();
  const Nanos deadline = now() + kLong;
  while (progress_->is_with_thread(bell->fd()) && now() < deadline) {
    Waiter never;
    progress_->wait(guard, never, now() + kMillisecond);
  }
  EXPECT_FALSE(progress_->is_with_thread(bell->fd()));
}

TEST_F(CalledThreadTest, ItRunsOnAnyCoreWhoeverCallsIt) {
  const Cpus all = allowed_cpus();
  Waiter waiter;
  Cpus cpus;
  Progress::Guard guard(*progress_);
  progress_->set_most_threads(1);
  Bell own(
      *progress_,
      [&] {
        cpus = allowed_cpus();
        progress_->finish(waiter);
      },
      thread_);
  Progress::RailThread* bound = *progress_->start_rail_thread("eth1", {*all.begin()});
  Bell others(
      *progress_,
      [&] {
        progress_->call_thread(own.fd());
        own.ring();
      },
      bound);
  others.ring();
  EXPECT_TRUE(progress_->wait(guard, waiter, now() + kLong));
  EXPECT_EQ(cpus, all);
}

TEST_F(CalledThreadTest, ItRunsNearItsNicIfTheCoresThereAreEnough) {
  const Cpus near = {*allowed_cpus().begin()};
  for (const auto& [most, ranks] : {std::pair{1, 1}, {2, 1}, {1, 2}}) {
    SCOPED_TRACE(::testing::Message() << most << " threads, " << ranks << " ranks");
    Cpus cpus;
    Waiter waiter;
    Progress::Guard guard(*progress_);
    progress_->set_most_threads(most, ranks);
    Bell bell(
        *progress_,
        [&] {
          cpus = allowed_cpus();
          progress_->finish(waiter);
        },
        progress_->add_rail_thread("eth1", {*near.begin(), 8191}));
    progress_->call_thread(bell.fd());
    bell.ring();
    EXPECT_TRUE(progress_->wait(guard, waiter, now() + kLong));
    EXPECT_EQ(cpus, most * ranks == 1 ? near : allowed_cpus());
  }
}

TEST_F(CalledThreadTest, AThreadThatCannotStartTakesNoPlace) {
  Progress::Guard guard(*progress_);
  progress_->set_most_threads(1);
  Progress::RailThread* second = progress_->add_rail_thread("eth1");
  Bell first(
      *progress_, [this] { handled_(); }, thread_);
  Bell last(
      *progress_, [this] { handled_(); }, second);
  rlimit old{};
  getrlimit(RLIMIT_NOFILE, &old);
  const rlimit none{0, old.rlim_max};
  setrlimit(RLIMIT_NOFILE, &none);
  progress_->call_thread(first.fd());
  setrlimit(RLIMIT_NOFILE, &old);
  EXPECT_FALSE(progress_->is_with_thread(first.fd()));
  EXPECT_NE(who_handles(guard, first), "nezha-eth0");
  progress_->call_thread(last.fd());
  EXPECT_EQ(who_handles(guard, last), "nezha-eth1");
}

// The thread takes the turns that others give to it, also when no event arrives, but none for a
// handler that was forgotten.
TEST_F(CalledThreadTest, ItTakesTheTurnsThatAreGivenToIt) {
  Progress::Guard guard(*progress_);
  progress_->set_most_threads(1);
  Bell bell(
      *progress_, [] {}, thread_);
  Bell forgotten(
      *progress_, [] {}, thread_);
  progress_->call_thread(bell.fd());
  for (int i = 0; i < 100; ++i) {
    Waiter waiter;
    int turns = 0;
    bell.turn = [&] {
      EXPECT_TRUE(Progress::is_this(thread_));
      ++turns;
      progress_->finish(waiter);
    };
    forgotten.turn = [] { ADD_FAILURE(); };
    progress_->call_thread(bell.fd());
    Progress::give_turn(thread_, &forgotten);
    Progress::give_turn(thread_, &bell);
    Progress::give_turn(thread_, &bell);
    Progress::forget(thread_, &forgotten);
    ASSERT_TRUE(progress_->wait(guard, waiter, now() + kLong));
    EXPECT_EQ(turns, 1);
  }
}

}  // namespace
}  // namespace nezha
