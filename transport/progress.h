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

// Gets the events of a file descriptor. Its functions are called under the lock.
class EventHandler {
 public:
  virtual ~EventHandler() = default;
  virtual void on_events(uint32_t epoll_events) = 0;
  // Handles what there is, without an event that says so. Returns whether there was anything.
  virtual bool look() { return false; }
  // Progress::give_turn has given the handler this turn.
  virtual void on_turn() {}
};

// Something that must be looked at in memory, such as the completion queue of a NIC: its descriptor
// tells of what comes only while it is armed. The descriptor is registered by Progress::add,
// without a rail's thread. Its functions are called under the lock.
class Poller {
 public:
  virtual ~Poller() = default;
  // Handles what there is. Returns whether there was anything.
  virtual bool poll() = 0;
  // Arms the descriptor: it tells of what comes until the next poll. Returns false if something may
  // have come already, or was handled.
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
  // The waiter expects something soon, and in the order in which things came before, as from peers
  // that run one operation after another. While it polls, it tries to read where it expects that,
  // which takes one system call; to ask epoll and then read takes two.
  bool is_keen = false;
  // How long the thread leaves alone what comes, to handle all of it at once. It does not rest
  // while other threads wait, too.
  Nanos rest = 0;
};

// What a thread waits for. Progress::finish, called under the lock, ends the wait.
class Waiter {
 public:
  bool done() const { return done_; }

 private:
  friend class Progress;
  std::condition_variable wake_;
  bool done_ = false;
};

// One lock guards everything that belongs to a Progress: links, channels, tasks, timers. It is held
// while events are handled (system calls that do not block, and reductions of a segment, except
// what rails' threads do without it), and never while a thread sleeps.
//
// A thread that waits for an operation drives: it may poll with a yield for a bounded time, and
// then sleeps in epoll. If several threads wait, one of them drives, and hands the role on when its
// own wait is over. If nobody waits, Progress's own thread drives, and sleeps in between. It stays
// out of the way of a process that starts one operation after another (kIdle).
//
// A rail may have a thread of its own. While on duty it handles events of the rail's descriptors,
// whoever waits, and does long work without the lock: it copies to and from sockets, and sums. The
// thread that waits does short work sooner. So a rail's thread is called only for the descriptors
// that long segments come and go by, and gives back those that it has not been called for within
// kOffDuty.
class Progress {
 public:
  class RailThread;

  static absl::StatusOr<std::unique_ptr<Progress>> create();
  ~Progress();  // no handler may be registered any more
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // The lock. Threads other than the driver take it by a `Guard`, for which the driver makes way.
  class Guard {
   public:
    explicit Guard(Progress& progress);
    Guard(const Guard&) = delete;
    Guard& operator=(const Guard&) = delete;

   private:
    friend class Progress;
    std::unique_lock<std::mutex> lock_;
  };

  // Drives, or sleeps while another thread drives, until `waiter` is done (true) or the deadline is
  // reached (false). `guard` is held before and after, and released meanwhile. A thread that does
  // not poll sleeps whenever there is nothing to handle. `pace` is called under the lock, at first
  // and after events.
  bool wait(
      Guard& guard, Waiter& waiter, Nanos deadline,
      absl::FunctionRef<Pace()> pace = [] { return Pace(); });
  void finish(Waiter& waiter);  // under the lock
  // Something was started that nobody waits for now: Progress's thread handles it at once.
  // Thread-safe.
  void nobody_waits();

  // When a rail's thread handles the rail's events.
  enum class Duty {
    kAlways,
    kWhenCalled,  // events of the descriptors that it is called for
  };
  // Callers hold the lock. Makes a rail's thread, which belongs to the Progress and ends with it.
  // Its name is nezha- and the end of `name`. It starts when it is first called, unless as many
  // have started as may. It runs on the cores that were allowed to the thread that made the
  // Progress: on those in `near`, if there are enough for all threads that may start in all ranks
  // that share them, or else on any of them.
  RailThread* add_rail_thread(absl::string_view name, const Cpus& near = {});
  // Does the same, but the thread starts now and is bound to `cpus`. Returns kInvalidArgument if
  // not all of the cores can be had; the error names those that can.
  absl::StatusOr<RailThread*> start_rail_thread(absl::string_view name, const Cpus& cpus,
                                                Duty duty = Duty::kAlways);
  // Callers hold the lock. Sets the most threads that may start by themselves, including those that
  // have. So many `ranks` of this machine, including this one, start as many threads on the same
  // cores.
  void set_most_threads(int threads, int ranks = 1) {
    most_threads_ = threads;
    ranks_ = ranks;
  }

  // Callers hold the lock, here and for all functions that follow. If the descriptor has a thread,
  // and that may run, it handles the descriptor's events from now on, until it has not been called
  // for kOffDuty.
  void call_thread(int fd);
  bool is_with_thread(int fd) const;
  // Returns whether the caller runs on that thread; false if it is null.
  static bool is_this(const RailThread* thread);
  // Makes the thread call handler->on_turn as soon as it is done with the event at hand, once for
  // all turns given until then, unless forget() comes first. The thread must have a descriptor of
  // the handler's.
  static void give_turn(RailThread* thread, EventHandler* handler);
  static bool has_turns(const RailThread* thread);
  static void forget(RailThread* thread, const EventHandler* handler);

  // Callers hold the lock. `events` are as for epoll (level-triggered). `thread` handles them while
  // it is on duty. Otherwise, or if it is null, the driving thread does. Errors are the kernel's.
  absl::Status add(int fd, EventHandler* handler, uint32_t events, RailThread* thread = nullptr);
  void modify(int fd, uint32_t events);
  void remove(int fd);

  // Callers hold the lock. The driving thread polls it in each round, and arms it before a sleep. A
  // poller that is being polled may remove any poller, even itself.
  void add_poller(Poller* poller);
  void remove_poller(Poller* poller);

  // Runs `call` without the lock. Callers hold the lock, in a handler that a rail's thread has
  // called, by on_events from the top or by on_turn. Afterwards, what the lock guards may have
  // changed, and the handler may be gone.
  template <typename Call>
  void without_lock(Call call) {
    mutex_.unlock();
    call();
    contend();
  }

  // Callers hold the lock. Runs `work` once the events at hand have been handled, before anybody
  // sleeps. It is for work that must not run inside of the caller, or is better done once for many
  // events.
  void defer(std::function<void()> work);

  // Runs what was deferred, under the lock. It is for callers that hold a Guard and are not
  // driving.
  void run_deferred();

  // Callers hold the lock. A thread of its own runs `work`, which may block and must not throw,
  // without the lock, and then `after` under it. What the two hold is destroyed under the lock,
  // too. The Progress does not end before. Returns an error if no thread could be started.
  absl::Status run_aside(std::function<void()> work, std::function<void()> after);

  // The listener is told, under the lock, of each exception that a handler, an alarm or deferred
  // work throws. Without a listener, the exception reaches the thread that drives. `is_known`:
  // there was no memory for a buffer, and everything is as it was before the request.
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
    RailThread* thread = nullptr;      // the rail's thread
    RailThread* handled_by = nullptr;  // null: the driving thread
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
  // Something may come by another way: so keen waiters run a round after so many looks, and after
  // so many looks in a row that found nothing.
  static constexpr int kLooks = 8;
  static constexpr int kMisses = 3;

  Progress();
  void run_thread();
  Cpus cores_for(const RailThread& thread) const;
  bool may_start(RailThread& thread);
  bool give_back(int fd, const RailThread* thread, Nanos before);
  bool move(int fd, int epoll_fd, RailThread* to);
  void run_rail_thread(RailThread& thread);
  void take_turns(RailThread& thread);
  // One round: waits for events up to `timeout`, with the lock released, and handles them. Returns
  // whether there were any.
  bool round(std::unique_lock<std::mutex>& lock, Nanos timeout);
  // Polls all pollers. Returns true if there was anything: nobody may sleep now. Otherwise, if the
  // caller is about to sleep, all are armed.
  bool ask_pollers(bool sleeps);
  bool poll_all();
  bool arm_all();
  // Does what a keen waiter does in place of a round. Returns whether there was anything.
  bool look(Nanos time);
  void note_event(int fd);
  // Calls `work`. Returns whether it threw.
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

  // How long a rail's thread keeps a descriptor that it is not called for: longer than the time
  // from one long segment to the next.
  static constexpr Nanos kOffDuty = 4 * kMillisecond;
  // How often a thread tries to take the lock before it sleeps. What is done under the lock takes
  // no longer than waking up does.
  static constexpr int kTries = 100;

  // How long Progress's thread leaves a process alone that has just left `wait` and may call it
  // again at once.
  static constexpr Nanos kIdle = 4 * kMillisecond;

  // How long a driving waiter polls after each event before it sleeps, since waking up takes longer
  // than a small message does. NEZHA_POLL.
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
  std::vector<Registration> registrations_;  // indexed by file descriptor
  int latest_ = -1;                          // descriptor that had an event; -1: none had
  int looks_ = 0;                            // looks since the last round
  int misses_ = 0;                           // looks in a row that found nothing
  std::vector<Alarm*> timers_;               // armed ones; few
  std::vector<Poller*> pollers_;             // few; null: removed since the last poll
  std::vector<std::function<void()>> deferred_, running_;
  int aside_ = 0;  // threads of run_aside that are not done
  std::condition_variable aside_done_;
  ExceptionListener exception_listener_;

  std::vector<std::unique_ptr<RailThread>> rail_threads_;
  int on_duty_ = 0;                   // rail threads that were called
  int started_ = 0;                   // rail threads that have started by themselves
  int most_threads_ = 0;              // rail threads that may
  int ranks_ = 1;                     // how many share these cores, including this one
  const Cpus cpus_ = allowed_cpus();  // the process's; these threads run on them
  std::thread thread_;
  std::mutex stop_mutex_;
  std::condition_variable stop_wake_;
  bool stop_ = false;
};

}  // namespace nezha
