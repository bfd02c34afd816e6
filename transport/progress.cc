// SPDX-License-Identifier: Apache-2.0
#include "transport/progress.h"

#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <limits>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "common/descriptor.h"
#include "common/environment.h"
#include "common/log.h"
#include "common/out_of_memory.h"
#include "common/shortage.h"

namespace nezha {
namespace {

constexpr Nanos kForever = std::numeric_limits<Nanos>::max();
constexpr Nanos kLongestSleep = 1000 * kSecond;  // a thread that sleeps looks again then

// Returns milliseconds for epoll, rounded up, so that a timer is due when the sleep ends.
int to_epoll_timeout(Nanos timeout) {
  if (timeout <= 0) return 0;
  timeout = std::min(timeout, kLongestSleep);
  return static_cast<int>((timeout + kMillisecond - 1) / kMillisecond);
}

uint64_t token(int fd, uint32_t generation) {
  return (uint64_t{generation} << 32) | static_cast<uint32_t>(fd);
}

// Is called between two tries to take a lock that another core has.
void pause() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#else
  std::atomic_signal_fence(std::memory_order_seq_cst);
#endif
}

}  // namespace

// ---- Alarm -------------------------------------------------------------------------------------

void Alarm::start(Nanos deadline) {
  deadline_ = deadline;
  if (!armed_) progress_.timers_.push_back(this);
  armed_ = true;
  if (deadline < progress_.driver_wakes_at_) progress_.driver_bell_.ring();
  if (deadline < progress_.thread_wakes_at_) progress_.thread_bell_.ring();
}

void Alarm::cancel() {
  if (!armed_) return;
  armed_ = false;
  std::erase(progress_.timers_, this);
}

// ---- Bell --------------------------------------------------------------------------------------

Progress::Bell::~Bell() {
  if (fd_ >= 0) close(fd_);
}

absl::Status Progress::Bell::open() {
  fd_ = above_standard(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  return fd_ >= 0 ? absl::OkStatus() : system_error(errno, "making an eventfd");
}

void Progress::Bell::ring() const {
  const uint64_t one = 1;
  if (write(fd_, &one, sizeof one) < 0 && errno != EAGAIN) {
    log().error("waking a thread failed: {}", strerror(errno));
  }
}

void Progress::Bell::on_events(uint32_t) {
  uint64_t rings;
  while (read(fd_, &rings, sizeof rings) < 0 && errno == EINTR) {
  }
}

// ---- A rail's own thread -----------------------------------------------------------------------

// All calls are made under the lock, but for the destructor.
class Progress::RailThread {
 public:
  RailThread(Progress& progress, absl::string_view name, Duty duty, Cpus near = {})
      : progress_(progress), name_(name), duty_(duty), near_(std::move(near)) {}

  ~RailThread() {
    if (thread_.joinable()) {
      {
        const std::lock_guard lock(progress_.mutex_);
        is_over_ = true;
      }
      call_.notify_one();
      bell_.ring();
      thread_.join();
    }
    if (epoll_fd_ >= 0) close(epoll_fd_);
  }

  // Starts the thread, bound to these cores if there are any.
  absl::Status start(const Cpus& cpus) {
    epoll_fd_ = above_standard(epoll_create1(EPOLL_CLOEXEC));
    if (epoll_fd_ < 0) return system_error(errno, "making an epoll instance");
    if (absl::Status status = bell_.open(); !status.ok()) return status;
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.u64 = kBell;
    if (epoll_ctl(epoll_fd_, EPOLL_CTL_ADD, bell_.fd(), &event) != 0) {
      return system_error(errno, "adding an eventfd to epoll");
    }
    auto thread = start_thread([this] {
      this_thread = this;
      progress_.run_rail_thread(*this);
    });
    if (!thread.ok()) return thread.status();
    thread_ = *std::move(thread);
    const size_t length = std::min(name_.size(), kMaxName);
    const std::string title = absl::StrCat("nezha-", name_.substr(name_.size() - length));
    pthread_setname_np(thread_.native_handle(), title.c_str());
    return cpus.empty() ? absl::OkStatus() : bind_thread(thread_.native_handle(), cpus);
  }

  const std::string& name() const { return name_; }
  const Cpus& near() const { return near_; }
  bool is_started() const { return thread_.joinable(); }
  bool has_failed() const { return has_failed_; }
  // Starts the thread now, on these cores as far as they can be had. Returns OK if it runs.
  absl::Status try_to_start(const Cpus& cpus) {
    absl::Status status = start({});
    has_failed_ = !status.ok();
    if (status.ok()) bind_thread(thread_.native_handle(), cpus).IgnoreError();
    return status;
  }
  bool is_always_on_duty() const { return duty_ == Duty::kAlways; }
  bool is_this() const { return this_thread == this; }
  int epoll_fd() const { return epoll_fd_; }
  // Returns milliseconds, as epoll wants them.
  int patience() const { return is_always_on_duty() ? -1 : to_epoll_timeout(kOffDuty); }

  // Sleeps, without the lock, until the thread is on duty. The thread itself calls this. Returns
  // false if the thread is to end.
  bool await_duty(std::unique_lock<std::mutex>& lock) {
    call_.wait(lock, [this] { return is_over_ || is_always_on_duty() || !fds_.empty(); });
    return !is_over_;
  }
  // Gives the thread the events of a descriptor, which is in its epoll instance now.
  void adopt(int fd) {
    fds_.push_back(fd);
    if (fds_.size() > 1) return;
    ++progress_.on_duty_;
    call_.notify_one();
  }
  // Gives back the descriptors that it was not called for of late.
  void go_off_duty() {
    if (fds_.empty() || has_turns()) return;
    const Nanos before = now() - kOffDuty;
    std::erase_if(fds_, [&](int fd) { return progress_.give_back(fd, this, before); });
    if (fds_.empty()) --progress_.on_duty_;
  }

  // Returns whether the event is the bell's. If so, silences the bell.
  bool is_bell(const epoll_event& event) {
    if (event.data.u64 != kBell) return false;
    bell_.on_events(EPOLLIN);
    return true;
  }

  void give_turn(EventHandler* handler) {
    if (std::find(turns_.begin(), turns_.end(), handler) != turns_.end()) return;
    turns_.push_back(handler);
    if (turns_.size() == 1 && !is_this()) bell_.ring();
  }
  bool has_turns() const { return !turns_.empty(); }
  void forget(const EventHandler* handler) { std::erase(turns_, handler); }
  EventHandler* next_turn() {
    EventHandler* next = turns_.front();
    turns_.erase(turns_.begin());
    return next;
  }

 private:
  static constexpr uint64_t kBell = std::numeric_limits<uint64_t>::max();  // no descriptor's token
  static constexpr size_t kMaxName = 9;  // the kernel keeps 15 characters of a thread's name
  static thread_local const RailThread* this_thread;

  Progress& progress_;
  const std::string name_;
  const Duty duty_;
  const Cpus near_;  // cores near the rail's NIC
  int epoll_fd_ = -1;
  Bell bell_;
  bool has_failed_ = false;  // the thread could not be started
  bool is_over_ = false;
  std::condition_variable call_;
  std::vector<int> fds_;              // few; the descriptors that it was called for
  std::vector<EventHandler*> turns_;  // few
  std::thread thread_;
};

thread_local const Progress::RailThread* Progress::RailThread::this_thread = nullptr;

// ---- Set-up ------------------------------------------------------------------------------------

Progress::Progress() : poll_(environment_number("NEZHA_POLL") * kMicrosecond) {}

absl::StatusOr<std::unique_ptr<Progress>> Progress::create() {
  std::unique_ptr<Progress> progress(new Progress);
  progress->epoll_fd_ = above_standard(epoll_create1(EPOLL_CLOEXEC));
  if (progress->epoll_fd_ < 0) return system_error(errno, "making the epoll instance");
  absl::Status status = progress->thread_bell_.open();
  status.Update(progress->driver_bell_.open());
  if (!status.ok()) return status;
  Bell& bell = progress->driver_bell_;
  status = progress->add(bell.fd(), &bell, EPOLLIN);
  if (!status.ok()) return status;
  auto thread = start_thread([p = progress.get()] { p->run_thread(); });
  if (!thread.ok()) return thread.status();
  progress->thread_ = *std::move(thread);
  return progress;
}

Progress::~Progress() {
  {
    std::unique_lock lock(mutex_);
    aside_done_.wait(lock, [this] { return aside_ == 0; });
  }
  if (thread_.joinable()) {
    {
      const std::lock_guard lock(stop_mutex_);
      stop_ = true;
    }
    stop_wake_.notify_all();
    thread_bell_.ring();
    thread_.join();
  }
  rail_threads_.clear();
  if (epoll_fd_ >= 0) close(epoll_fd_);
}

absl::Status Progress::add(int fd, EventHandler* handler, uint32_t events, RailThread* thread) {
  const auto slot = static_cast<size_t>(fd);
  if (slot >= registrations_.size()) registrations_.resize(slot + 1);
  Registration& registration = registrations_[slot];
  registration.handler = handler;
  registration.events = events;
  registration.thread = thread;
  registration.handled_by = thread != nullptr && thread->is_always_on_duty() ? thread : nullptr;
  registration.epoll_fd = registration.handled_by == nullptr ? epoll_fd_ : thread->epoll_fd();
  // The generation tells late events of an earlier descriptor of this number apart.
  ++registration.generation;
  epoll_event event{};
  event.events = events;
  event.data.u64 = token(fd, registration.generation);
  if (epoll_ctl(registration.epoll_fd, EPOLL_CTL_ADD, fd, &event) != 0) {
    registration.handler = nullptr;
    return system_error(errno, "adding a descriptor to epoll");
  }
  return absl::OkStatus();
}

void Progress::modify(int fd, uint32_t events) {
  Registration& registration = registrations_[static_cast<size_t>(fd)];
  registration.events = events;
  epoll_event event{};
  event.events = events;
  event.data.u64 = token(fd, registration.generation);
  epoll_ctl(registration.epoll_fd, EPOLL_CTL_MOD, fd, &event);
}

void Progress::remove(int fd) {
  if (fd < 0 || static_cast<size_t>(fd) >= registrations_.size()) return;  // was never added
  Registration& registration = registrations_[static_cast<size_t>(fd)];
  epoll_ctl(registration.epoll_fd, EPOLL_CTL_DEL, fd, nullptr);
  registration.handler = nullptr;
  registration.thread = registration.handled_by = nullptr;
}

// ---- Pollers -----------------------------------------------------------------------------------

void Progress::add_poller(Poller* poller) {
  pollers_.push_back(poller);
  // A thread that is asleep has not armed it.
  if (driver_wakes_at_ != 0) driver_bell_.ring();
  if (thread_wakes_at_ != 0) thread_bell_.ring();
}

void Progress::remove_poller(Poller* poller) {
  std::replace(pollers_.begin(), pollers_.end(), poller, static_cast<Poller*>(nullptr));
}

bool Progress::ask_pollers(bool sleeps) {
  if (pollers_.empty()) return false;
  if (poll_all()) return true;
  if (!sleeps || arm_all()) return false;
  poll_all();
  return true;
}

bool Progress::poll_all() {
  bool found = false;
  size_t next = 0;
  while (next < pollers_.size()) {  // others may come and go meanwhile
    Poller* poller = pollers_[next++];
    if (poller == nullptr) continue;
    if (throws([&] { found |= poller->poll(); })) found = true;
  }
  std::erase(pollers_, nullptr);
  return found;
}

bool Progress::arm_all() {
  bool all = true;
  size_t next = 0;
  while (next < pollers_.size()) {  // as in poll_all
    Poller* poller = pollers_[next++];
    if (poller == nullptr) continue;
    if (throws([&] { all &= poller->arm(); })) all = false;
  }
  return all;
}

// ---- The lock and the driver -------------------------------------------------------------------

Progress::Guard::Guard(Progress& progress) {
  progress.contend();
  lock_ = std::unique_lock(progress.mutex_, std::adopt_lock);
}

void Progress::contend() {
  for (int i = 0; i < kTries; ++i) {
    if (mutex_.try_lock()) return;
    pause();
  }
  contenders_.fetch_add(1, std::memory_order_relaxed);
  mutex_.lock();
  contenders_.fetch_sub(1, std::memory_order_relaxed);
}

// A mutex is not fair: a driver that unlocks and locks again would shut the others out.
void Progress::make_way(std::unique_lock<std::mutex>& lock) {
  if (contenders_.load(std::memory_order_relaxed) == 0) return;
  lock.unlock();
  let_contenders_in();
  lock.lock();
}

void Progress::let_contenders_in() const {
  for (int i = 0; i < 100 && contenders_.load(std::memory_order_relaxed) > 0; ++i) sched_yield();
}

void Progress::finish(Waiter& waiter) {
  waiter.done_ = true;
  if (driver_ != &waiter) {
    waiter.wake_.notify_one();
  } else if (driver_wakes_at_ != 0) {
    driver_bell_.ring();
  }
}

void Progress::nobody_waits() {
  {
    const std::lock_guard lock(stop_mutex_);
    last_driven_.store(0, std::memory_order_relaxed);
  }
  stop_wake_.notify_all();
}

void Progress::hand_on() {
  driver_ = nullptr;
  last_driven_.store(now(), std::memory_order_relaxed);
  driving_.store(false, std::memory_order_relaxed);
  if (!sleepers_.empty()) return sleepers_.front()->wake_.notify_one();
  // Polling has disarmed what Progress's thread, if it is still asleep, had armed.
  if (!pollers_.empty() && thread_wakes_at_ != 0) thread_bell_.ring();
}

bool Progress::wait(Guard& guard, Waiter& waiter, Nanos deadline,
                    absl::FunctionRef<Pace()> ask_pace) {
  std::unique_lock<std::mutex>& lock = guard.lock_;
  run_deferred();  // the driver may be asleep
  while (driver_ != nullptr && !waiter.done_) {
    const auto self = sleepers_.insert(sleepers_.end(), &waiter);
    const auto wake_at = std::chrono::steady_clock::time_point(std::chrono::nanoseconds(deadline));
    const bool in_time = waiter.wake_.wait_until(lock, wake_at) == std::cv_status::no_timeout;
    sleepers_.erase(self);
    if (!in_time && !waiter.done_) {
      // The hand-over may have been meant for this one.
      if (driver_ == nullptr) hand_on();
      return false;
    }
  }
  if (waiter.done_) {
    if (driver_ == nullptr) hand_on();
    return true;
  }
  driver_ = &waiter;
  driving_.store(true, std::memory_order_relaxed);
  Pace pace = ask_pace();
  Nanos poll_until = pace.polls ? now() + poll_ : 0;
  while (!waiter.done_) {
    const Nanos time = now();
    if (time >= deadline) break;
    // An event on a rail whose thread is on duty ends a sleep, but a round does not see it.
    const bool polling = time < poll_until && on_duty_ == 0;
    const Nanos sleep =
        polling ? 0 : std::min({until_next_timer(), deadline - time, kLongestSleep});
    const bool looks = polling && pace.is_keen && looks_ < kLooks && misses_ < kMisses;
    const bool active = looks ? look(time) : round(lock, sleep);
    looks_ = looks ? looks_ + 1 : 0;
    misses_ = looks && !active ? misses_ + 1 : 0;
    if (active && !waiter.done_) {
      pace = ask_pace();
      poll_until = !pace.polls ? 0 : (looks ? time : now()) + poll_;
      if (pace.rest > 0 && sleepers_.empty() && on_duty_ == 0) {
        rest(lock, std::min(pace.rest, deadline - now()));
      }
    } else if (polling && !active) {
      lock.unlock();
      sched_yield();  // more ranks than cores: the data this one waits for may need this core
      lock.lock();
    }
    make_way(lock);
  }
  hand_on();
  return waiter.done_;
}

bool Progress::round(std::unique_lock<std::mutex>& lock, Nanos timeout) {
  std::array<epoll_event, kMaxEvents> events;
  const bool found = ask_pollers(/*sleeps=*/timeout > 0);
  if (found) timeout = 0;
  driver_wakes_at_ = timeout > 0 ? now() + timeout : 0;
  lock.unlock();
  const int count = epoll_wait(epoll_fd_, events.data(), kMaxEvents, to_epoll_timeout(timeout));
  contend();
  lock = std::unique_lock(mutex_, std::adopt_lock);
  driver_wakes_at_ = 0;
  handle(events.data(), count);
  return found || count > 0;
}

bool Progress::look(Nanos time) {
  if (ask_pollers(/*sleeps=*/false)) {
    run_timers(time);
    run_deferred();
    return true;
  }
  if (latest_ < 0) return false;
  const int next = registrations_[static_cast<size_t>(latest_)].next;
  const int fd = next < 0 ? latest_ : next;
  EventHandler* handler = registrations_[static_cast<size_t>(fd)].handler;
  if (handler == nullptr) return false;
  bool has_looked = false;
  if (!throws([&] { has_looked = handler->look(); }) && !has_looked) return false;
  note_event(fd);
  run_timers(time);
  run_deferred();
  return true;
}

void Progress::note_event(int fd) {
  if (latest_ >= 0) registrations_[static_cast<size_t>(latest_)].next = fd;
  latest_ = fd;
}

void Progress::rest(std::unique_lock<std::mutex>& lock, Nanos time) {
  lock.unlock();
  std::this_thread::sleep_for(std::chrono::nanoseconds(time));
  lock.lock();
}

void Progress::handle(const epoll_event* events, int count) {
  dispatch(events, count);
  if (!timers_.empty()) run_timers(now());
  run_deferred();
}

void Progress::dispatch(const epoll_event* events, int count, RailThread* thread) {
  for (int i = 0; i < count; ++i) {
    if (thread != nullptr && thread->is_bell(events[i])) continue;
    const auto fd = static_cast<uint32_t>(events[i].data.u64);
    const Registration& registration = registrations_[fd];
    // The descriptor may have gone to another thread meanwhile, which gets the event, too.
    if (registration.handler == nullptr || registration.handled_by != thread) continue;
    if (token(static_cast<int>(fd), registration.generation) != events[i].data.u64) continue;
    EventHandler* handler = registration.handler;
    throws([&] { handler->on_events(events[i].events); });
    if (thread == nullptr) {
      note_event(static_cast<int>(fd));
    } else {
      take_turns(*thread);
    }
  }
}

void Progress::run_timers(Nanos time) {
  for (size_t i = 0; i < timers_.size();) {
    Alarm* timer = timers_[i];
    if (timer->deadline_ > time) {
      ++i;
      continue;
    }
    timer->cancel();
    throws([&] { timer->callback_(); });  // may start or cancel any timer: begin again
    i = 0;
  }
}

Nanos Progress::until_next_timer() const {
  Nanos next = kForever;
  for (const Alarm* timer : timers_) next = std::min(next, timer->deadline_);
  return next == kForever ? kForever : std::max<Nanos>(0, next - now());
}

void Progress::defer(std::function<void()> work) { deferred_.push_back(std::move(work)); }

void Progress::run_deferred() {
  while (!deferred_.empty()) {
    running_.swap(deferred_);
    for (auto& work : running_) throws(work);
    running_.clear();
  }
}

absl::Status Progress::run_aside(std::function<void()> work, std::function<void()> after) {
  auto thread = start_thread([this, work = std::move(work), after = std::move(after)]() mutable {
    work();
    const Guard guard(*this);
    throws(after);
    work = after = nullptr;
    run_deferred();
    --aside_;
    aside_done_.notify_all();
  });
  if (!thread.ok()) return thread.status();
  ++aside_;
  thread->detach();
  return absl::OkStatus();
}

bool Progress::throws(absl::FunctionRef<void()> work) {
  try {
    work();
    return false;
  } catch (const OutOfMemory&) {
    if (!exception_listener_) throw;
    exception_listener_(caught_status(), true);
  } catch (...) {
    if (!exception_listener_) throw;
    exception_listener_(caught_status(), false);
  }
  return true;
}

// ---- Rails' threads ----------------------------------------------------------------------------

Progress::RailThread* Progress::add_rail_thread(absl::string_view name, const Cpus& near) {
  rail_threads_.push_back(std::make_unique<RailThread>(*this, name, Duty::kWhenCalled, near));
  return rail_threads_.back().get();
}

// A thread that fails stays, too, since it cannot end under the lock. It gets no events.
absl::StatusOr<Progress::RailThread*> Progress::start_rail_thread(absl::string_view name,
                                                                  const Cpus& cpus, Duty duty) {
  rail_threads_.push_back(std::make_unique<RailThread>(*this, name, duty));
  RailThread* thread = rail_threads_.back().get();
  if (absl::Status status = thread->start(cpus); !status.ok()) return status;
  return thread;
}

Cpus Progress::cores_for(const RailThread& thread) const {
  Cpus near;
  std::set_intersection(thread.near().begin(), thread.near().end(), cpus_.begin(), cpus_.end(),
                        std::inserter(near, near.end()));
  return static_cast<int>(near.size()) < most_threads_ * ranks_ ? cpus_ : near;
}

bool Progress::may_start(RailThread& thread) {
  if (started_ >= most_threads_ || thread.has_failed()) return false;
  const absl::Status status = thread.try_to_start(cores_for(thread));
  if (status.ok()) {
    ++started_;
    return true;
  }
  log().warn("no thread could be started for {}, so other threads do its work: {}", thread.name(),
             std::string(status.message()));
  return false;
}

void Progress::call_thread(int fd) {
  Registration& registration = registrations_[static_cast<size_t>(fd)];
  RailThread* thread = registration.thread;
  if (thread == nullptr || thread->is_always_on_duty() || registration.handler == nullptr) return;
  if (!thread->is_started() && !may_start(*thread)) return;
  registration.called_at = now();
  if (registration.handled_by != nullptr) return;
  if (move(fd, thread->epoll_fd(), thread)) thread->adopt(fd);
}

// Gives the descriptor back if the thread was last called for it by `before`. Returns whether the
// thread no longer has it. Without memory the thread keeps it.
bool Progress::give_back(int fd, const RailThread* thread, Nanos before) {
  const Registration& registration = registrations_[static_cast<size_t>(fd)];
  if (registration.handled_by != thread) return true;
  return registration.called_at <= before && move(fd, epoll_fd_, nullptr);
}

bool Progress::move(int fd, int epoll_fd, RailThread* to) {
  Registration& registration = registrations_[static_cast<size_t>(fd)];
  epoll_event event{};
  event.events = registration.events;
  event.data.u64 = token(fd, registration.generation);
  if (epoll_ctl(epoll_fd, EPOLL_CTL_ADD, fd, &event) != 0) return false;
  epoll_ctl(registration.epoll_fd, EPOLL_CTL_DEL, fd, nullptr);
  registration.epoll_fd = epoll_fd;
  registration.handled_by = to;
  return true;
}

bool Progress::is_with_thread(int fd) const {
  return registrations_[static_cast<size_t>(fd)].handled_by != nullptr;
}

bool Progress::is_this(const RailThread* thread) { return thread != nullptr && thread->is_this(); }

void Progress::give_turn(RailThread* thread, EventHandler* handler) { thread->give_turn(handler); }

bool Progress::has_turns(const RailThread* thread) {
  return thread != nullptr && thread->has_turns();
}

void Progress::forget(RailThread* thread, const EventHandler* handler) {
  if (thread != nullptr) thread->forget(handler);
}

void Progress::take_turns(RailThread& thread) {
  while (thread.has_turns()) {
    EventHandler* next = thread.next_turn();
    throws([&] { next->on_turn(); });
  }
}

void Progress::run_rail_thread(RailThread& thread) {
  contend();
  std::unique_lock lock(mutex_, std::adopt_lock);
  while (thread.await_duty(lock)) {
    std::array<epoll_event, kMaxEvents> events;
    lock.unlock();
    const int count = epoll_wait(thread.epoll_fd(), events.data(), kMaxEvents, thread.patience());
    contend();
    lock = std::unique_lock(mutex_, std::adopt_lock);
    dispatch(events.data(), count, &thread);
    do {
      take_turns(thread);
      if (!timers_.empty()) run_timers(now());
      run_deferred();
    } while (thread.has_turns());
    thread.go_off_duty();
  }
}

// ---- The thread for when nobody waits ----------------------------------------------------------

void Progress::run_thread() {
  const auto stopping = [this] {
    const std::lock_guard stop_lock(stop_mutex_);
    return stop_;
  };
  std::unique_lock<std::mutex> lock(mutex_, std::defer_lock);
  while (!stopping()) {
    const Nanos idle = now() - last_driven_.load(std::memory_order_relaxed);
    if (driving_.load(std::memory_order_relaxed) || idle < kIdle) {
      std::unique_lock stop_lock(stop_mutex_);
      stop_wake_.wait_for(stop_lock, std::chrono::nanoseconds(kIdle), [this] {
        return stop_ || (!driving_.load(std::memory_order_relaxed) &&
                         last_driven_.load(std::memory_order_relaxed) == 0);
      });
      continue;
    }
    lock.lock();
    // A driver that sleeps has armed the pollers, and is not to be disturbed.
    const bool drives = !driving_.load(std::memory_order_relaxed);
    const Nanos timeout = drives && ask_pollers(/*sleeps=*/true) ? 0 : until_next_timer();
    thread_wakes_at_ = timeout == kForever ? kForever : now() + timeout;
    lock.unlock();
    // poll() is called and not epoll_wait(), which would take wake-ups away from a driver that
    // sleeps in it.
    std::array<pollfd, 2> sources{{{epoll_fd_, POLLIN, 0}, {thread_bell_.fd(), POLLIN, 0}}};
    poll(sources.data(), sources.size(), to_epoll_timeout(timeout));
    if (sources[1].revents != 0) thread_bell_.on_events(POLLIN);
    lock.lock();
    thread_wakes_at_ = 0;
    if (!driving_.load(std::memory_order_relaxed)) {
      round(lock, 0);
      make_way(lock);
    }
    lock.unlock();
  }
}

}  // namespace nezha
