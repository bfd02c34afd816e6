// SPDX-License-Identifier: Apache-2.0
// Progress: the process's I/O. It owns the epoll instance, the timers and the lock under which all
// of transport and collectives runs, and decides which thread drives them.
#pragma once

#include <array>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/clock.h"
#include "common/cpus.h"

struct epoll_event;

namespace nezha {

// Gets the events of a file descriptor. Called under the lock.
class EventHandler {
 public:
  virtual ~EventHandler() = default;
  virtual void on_events(uint32_t epoll_events) = 0;
  // Handles what there is, without being told that there is something; whether there was.
  virtual bool look() { return false; }
  // It has this turn by Progress::give_turn.
  virtual void on_turn() {}
};

// Something that is looked at in memory, as the completion queue of a NIC: no descriptor tells of
// what comes to it unless it is armed. Its descriptor is registered by Progress::add, without a
// rail's thread. Called under the lock.
class Poller {
 public:
  virtual ~Poller() = default;
  // Handles what there is; whether there was anything.
  virtual bool poll() = 0;
  // From now on, until it is polled again, the descriptor tells of what comes. False: something may
  // have come already, or it was handled.
  virtual bool arm() = 0;
};

// Calls back once, at or after its deadline, under the lock. Destroying it cancels it. All calls
// are made under the lock.
class Alarm {
 public:
  Alarm(class Progress& progress, std::function<void()> callback)
      : progress_(progress), callback_(std::move(callback)) {}
  ~Alarm() { cancel(); }
  Alarm(const Alarm&) = delete;
  Alarm& operator=(const Alarm&) = delete;

  void start(Nanos deadline);  // replaces an earlier deadline
  void cancel();
  bool armed() const { return armed_; }

 private:
  friend class Progress;
  class Progress& progress_;
  std::function<void()> callback_;
  Nanos deadline_ = 0;
  bool armed_ = false;
};

// How a thread that drives waits for the next event.
struct Pace {
  bool polls = true;
  // It expects something soon, in the order in which things came before, as from the peers of one
  // operation after the other: as long as it polls it looks there, which takes one system call,
  // where it takes two to be told and to read.
  bool is_keen = false;
  // For so long it leaves alone what comes, and then handles all of it at once; not while others
  // wait too.
  Nanos rest = 0;
};

// What a thread waits for: `finish` it under the lock.
class Waiter {
 public:
  bool done() const { return done_; }

 private:
  friend class Progress;
  std::condition_variable wake_;
  bool done_ = false;
};

// One lock guards everything that hangs on a Progress: links, channels, tasks, timers. It is held
// while events are handled (system calls that do not block, reductions of a segment, but for what
// rails' threads do without it) and never while a thread sleeps.
//
// A thread that waits for an operation drives: it may poll with a yield for a bounded time, then
// sleeps in epoll. With several waiters one drives, and hands the role on when its own wait is
// over. When nobody waits, a thread of Progress's own does, asleep in epoll; it stays out of the
// way of a process that starts one operation after the other (kIdle).
//
// A rail may have a thread of its own. As long as it is on duty it handles events of the rail's
// descriptors, whoever waits, and does without the lock what takes long: it copies to and from
// sockets, and sums. What is short is done sooner by the thread that waits for it. So a rail's
// thread is called for the descriptors that long segments come and go by, and gives back those that
// it has not been called for within kOffDuty.
class Progress {
 public:
  class RailThread;

  static absl::StatusOr<std::unique_ptr<Progress>> create();
  ~Progress();  // no handler may be registered any more
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // The lock. `Guard` is how threads other than the driver come in; the driver makes way for it.
  class Guard {
   public:
    explicit Guard(Progress& progress);
    Guard(const Guard&) = delete;
    Guard& operator=(const Guard&) = delete;

   private:
    friend class Progress;
    std::unique_lock<std::mutex> lock_;
  };

  // Drives, or sleeps while another thread drives, until `waiter` is done (true) or the deadline
  // is reached (false). `guard` is held before and after, and released meanwhile. Who does not poll
  // sleeps whenever there is nothing to handle. `pace` is asked for, under the lock, at first and
  // after events.
  bool wait(
      Guard& guard, Waiter& waiter, Nanos deadline,
      absl::FunctionRef<Pace()> pace = [] { return Pace(); });
  void finish(Waiter& waiter);  // under the lock
  // Something was started that nobody waits for now: the thread goes to it at once. Thread-safe.
  void nobody_waits();

  // When a rail's thread handles the rail's events.
  enum class Duty {
    kAlways,
    kWhenCalled,  // those of the descriptors that it is called for
  };
  // Under the lock. A rail's thread. Its name is nezha- and the end of `name`. It is the
  // Progress's, and ends with it. It starts when it is first called, if fewer have started than
  // may, and runs on any core that the thread had which made the Progress.
  RailThread* add_rail_thread(absl::string_view name);
  // Likewise, started now, and bound to `cpus`. kInvalidArgument: not all of the cores can be had;
  // the error names those that can.
  absl::StatusOr<RailThread*> start_rail_thread(absl::string_view name, const Cpus& cpus,
                                                Duty duty = Duty::kAlways);
  // Under the lock. So many threads may start by themselves, those that have among them.
  void set_most_threads(int threads) { most_threads_ = threads; }

  // Under the lock, as all that follow. The descriptor's thread, if it has one that may run,
  // handles its events from now on, until it has not been called for kOffDuty.
  void call_thread(int fd);
  bool is_with_thread(int fd) const;
  // Whether the caller is the thread; null: it is not.
  static bool is_this(const RailThread* thread);
  // The thread, which has a descriptor of the handler's, calls handler->on_turn as soon as it is
  // done with the event at hand, once for all turns given until then; unless forget() comes first.
  static void give_turn(RailThread* thread, EventHandler* handler);
  static bool has_turns(const RailThread* thread);
  static void forget(RailThread* thread, const EventHandler* handler);

  // Under the lock. `events` as for epoll (level-triggered). They are handled by `thread` when that
  // is on duty, and else, or if it is null, by whoever drives. Errors are the kernel's.
  absl::Status add(int fd, EventHandler* handler, uint32_t events, RailThread* thread = nullptr);
  void modify(int fd, uint32_t events);
  void remove(int fd);

  // Under the lock. Who drives polls it in each round, and arms it before a sleep. It may be
  // removed by a poller that is being polled, itself too.
  void add_poller(Poller* poller);
  void remove_poller(Poller* poller);

  // Under the lock, in a handler that a rail's thread has called, by on_events from the top or by
  // on_turn: runs `call` without the lock.
  // What that guards may be another afterwards, and the handler gone.
  template <typename Call>
  void without_lock(Call call) {
    mutex_.unlock();
    call();
    contend();
  }

  // Under the lock: runs `work` when the events at hand have been handled, before anybody sleeps.
  // For what must not run inside of the caller, or is better done once for many events.
  void defer(std::function<void()> work);

  // Under the lock: runs what was deferred. For callers that hold a Guard and are not driving.
  void run_deferred();

  // Under the lock. A thread of its own runs `work`, which may block and throws nothing, without
  // the lock, and then `after` under it. What the two hold goes under the lock, too. The Progress
  // does not end before. An error: there is no such thread.
  absl::Status run_aside(std::function<void()> work, std::function<void()> after);

  // The listener is told, under the lock, of each exception that a handler, an alarm or deferred
  // work throws. The thread that drives does not see the exception then; without a listener it
  // does. `is_known`: there was no memory for a buffer, and all is as it was before that was asked
  // for.
  using ExceptionListener = std::function<void(const absl::Status& what, bool is_known)>;
  void set_exception_listener(ExceptionListener listener) {
    exception_listener_ = std::move(listener);
  }

 private:
  friend class Alarm;
  struct Registration {
    EventHandler* handler = nullptr;
    uint32_t generation = 0;
    int epoll_fd = -1;
    uint32_t events = 0;
    RailThread* thread = nullptr;      // the rail's
    RailThread* handled_by = nullptr;  // null: by whoever drives
    Nanos called_at = 0;               // when the thread was called last
    int next = -1;  // the descriptor that had an event after this one's last; -1: none had
  };
  // Ends somebody's sleep in epoll.
  class Bell final : public EventHandler {
   public:
    ~Bell() override;
    absl::Status open();
    int fd() const { return fd_; }
    void ring() const;  // thread-safe
    void on_events(uint32_t) override;

   private:
    int fd_ = -1;  // an eventfd
  };
  static constexpr int kMaxEvents = 64;
  // Something may come by another way: there is a round after so many looks of waiters that are
  // keen, and after so many in a row that were in vain.
  static constexpr int kLooks = 8;
  static constexpr int kMisses = 3;

  Progress();
  void run_thread();
  bool may_start(RailThread& thread);
  bool give_back(int fd, const RailThread* thread, Nanos before);
  bool move(int fd, int epoll_fd, RailThread* to);
  void run_rail_thread(RailThread& thread);
  void take_turns(RailThread& thread);
  // One round: waits for events up to `timeout`, with the lock released, and handles them. Returns
  // whether there were any.
  bool round(std::unique_lock<std::mutex>& lock, Nanos timeout);
  // Whether there was anything with the pollers: nobody may sleep now. Otherwise, and if somebody
  // is about to sleep, all are armed.
  bool ask_pollers(bool sleeps);
  bool poll_all();
  bool arm_all();
  // What a waiter that is keen does in place of a round. Whether there was anything.
  bool look(Nanos time);
  void note_event(int fd);
  // Calls `work`; whether it threw.
  bool throws(absl::FunctionRef<void()> work);
  static void rest(std::unique_lock<std::mutex>& lock, Nanos time);
  void handle(const epoll_event* events, int count);
  void dispatch(const epoll_event* events, int count, RailThread* thread = nullptr);
  void run_timers(Nanos time);
  Nanos until_next_timer() const;
  void make_way(std::unique_lock<std::mutex>& lock);
  void let_contenders_in() const;
  void contend();
  void hand_on();

  // How long a rail's thread keeps a descriptor that it is not called for. Longer than the time
  // from one long segment to the next.
  static constexpr Nanos kOffDuty = 4 * kMillisecond;
  // How often who wants the lock tries to have it before it sleeps: what is done under the lock
  // takes no longer than to be woken does.
  static constexpr int kTries = 100;

  // How long the thread leaves a process alone that has just left `wait`: it may come back at once.
  static constexpr Nanos kIdle = 4 * kMillisecond;

  // How long a waiter that drives polls, after each event, before it sleeps: to be woken takes
  // longer than a small message does. NEZHA_POLL.
  const Nanos poll_;

  std::mutex mutex_;
  std::atomic<int> contenders_{0};  // threads that want the lock and do not drive
  std::atomic<bool> driving_{false};
  std::atomic<Nanos> last_driven_{0};
  std::list<Waiter*> sleepers_;  // waiters that do not drive
  Waiter* driver_ = nullptr;

  int epoll_fd_ = -1;
  Bell driver_bell_;
  Bell thread_bell_;
  // When their sleep ends by itself; 0: they do not sleep.
  Nanos driver_wakes_at_ = 0;
  Nanos thread_wakes_at_ = 0;
  std::vector<Registration> registrations_;  // by file descriptor
  int latest_ = -1;                          // descriptor that had an event; -1: none had
  int looks_ = 0;                            // since the last round
  int misses_ = 0;                           // the last looks, which were in vain
  std::vector<Alarm*> timers_;               // armed ones; few
  std::vector<Poller*> pollers_;             // few; null: removed since the last poll
  std::vector<std::function<void()>> deferred_, running_;
  int aside_ = 0;  // threads of run_aside that are not done
  std::condition_variable aside_done_;
  ExceptionListener exception_listener_;

  std::vector<std::unique_ptr<RailThread>> rail_threads_;
  int on_duty_ = 0;                   // of them, those that were called
  int started_ = 0;                   // of them, those that have started by themselves
  int most_threads_ = 0;              // that may
  const Cpus cpus_ = allowed_cpus();  // of the process; these threads run on any of them
  std::thread thread_;
  std::mutex stop_mutex_;
  std::condition_variable stop_wake_;
  bool stop_ = false;
};

}  // namespace nezha
