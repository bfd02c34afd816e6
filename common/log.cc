// SPDX-License-Identifier: Apache-2.0
#include "common/log.h"

#include <pthread.h>
#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/base_sink.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <ctime>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/environment.h"
#include "common/fork.h"
#include "common/host.h"
#include "common/launch.h"
#include "common/log_file.h"

namespace nezha {
namespace {

// While this lives, a write of this thread that fails (to a pipe or socket that nobody reads, or to
// a file that has reached its size limit) only returns an error. It blocks the signal that comes
// with the error, which would end the program.
class NoSignals {
 public:
  NoSignals() {
    sigset_t pending;
    sigset_t all;
    sigemptyset(&pending);
    sigemptyset(&all);
    sigemptyset(&raised_);
    sigpending(&pending);
    for (const int signal : {SIGPIPE, SIGXFSZ}) {
      sigaddset(&all, signal);
      // A signal that was already pending belongs to the program.
      if (sigismember(&pending, signal) != 1) sigaddset(&raised_, signal);
    }
    pthread_sigmask(SIG_BLOCK, &all, &mask_);
  }
  ~NoSignals() {
    const timespec at_once{};
    while (sigtimedwait(&raised_, nullptr, &at_once) > 0 || errno == EINTR) {
    }
    pthread_sigmask(SIG_SETMASK, &mask_, nullptr);
  }
  NoSignals(const NoSignals&) = delete;
  NoSignals& operator=(const NoSignals&) = delete;

 private:
  sigset_t raised_;
  sigset_t mask_;
};

// Knows which rank the lines of the process's log belong to, if they belong to one.
class Speakers {
 public:
  void add(const RankLog& log, int rank) {
    const std::lock_guard lock(mutex_);
    if (first_rank_ < 0) first_rank_ = rank;
    std::erase_if(logs_, [](const auto& known) { return known.expired(); });
    logs_.push_back(log);
    last_ = only();
  }
  // Returns "rank 3 of 8" if all living logs belong to that one rank or, once none lives any more,
  // if those that lived last did; otherwise "".
  std::string rank_of() {
    const std::lock_guard lock(mutex_);
    const bool is_over =
        std::all_of(logs_.begin(), logs_.end(), [](const auto& known) { return known.expired(); });
    return is_over ? last_ : only();
  }
  // Returns the rank in the process's first context or, before there is one, the launcher's.
  // Negative if there is none.
  int first_rank() {
    const std::lock_guard lock(mutex_);
    if (first_rank_ >= 0) return first_rank_;
    const auto launch = read_launch_environment();
    return launch.ok() ? launch->rank : -1;
  }

 private:
  std::string only() const {
    std::string name;
    for (const auto& known : logs_) {
      const RankLog log = known.lock();
      if (log == nullptr || log->name() == name) continue;
      if (!name.empty()) return "";
      name = log->name();
    }
    return name;
  }

  std::mutex mutex_;
  std::string last_;  // only() when the latest one was added
  std::vector<std::weak_ptr<spdlog::logger>> logs_;
  int first_rank_ = -1;
};

constexpr char kOfProcess[] = "nezha";  // the name of the logger that belongs to no rank

// "rank 3 of 8, host node7, pid 4242"
class Who final : public spdlog::custom_flag_formatter {
 public:
  explicit Who(std::shared_ptr<Speakers> speakers) : speakers_(std::move(speakers)) {}

  void format(const spdlog::details::log_msg& message, const std::tm& /*time*/,
              spdlog::memory_buf_t& line) override {
    std::string rank(message.logger_name.data(), message.logger_name.size());
    if (rank == kOfProcess) rank = speakers_->rank_of();
    const std::string text = rank.empty() ? process_ : absl::StrCat(rank, ", ", process_);
    line.append(text.data(), text.data() + text.size());
  }
  std::unique_ptr<spdlog::custom_flag_formatter> clone() const override {
    return std::make_unique<Who>(*this);
  }

 private:
  std::shared_ptr<Speakers> speakers_;
  std::string process_ = absl::StrCat("host ", host_name(), ", pid ", getpid());
};

// Writes to the file that NEZHA_LOG_FILE names, or to standard error. spdlog's own sinks have a
// lock that all loggers share, which may be held forever in a child of fork(). A line that cannot
// be written is dropped.
class Sink final : public spdlog::sinks::base_sink<std::mutex> {
 public:
  explicit Sink(std::shared_ptr<Speakers> speakers) : speakers_(std::move(speakers)) {}

 private:
  void sink_it_(const spdlog::details::log_msg& message) override {
    const NoSignals quietly;
    if (!is_tried_ && !pattern_.empty()) {
      is_tried_ = true;
      tell(file_.open(LogFileName::expand(pattern_, speakers_->first_rank())));
    }
    const std::string line = line_of(message);
    if (file_.is_open()) {
      const absl::Status status = file_.append(line);
      if (status.ok()) return;
      tell(status);
    }
    std::fwrite(line.data(), 1, line.size(), stderr);
  }
  void flush_() override {
    const NoSignals quietly;
    std::fflush(stderr);
  }
  // Reports on standard error that the file cannot be opened or written.
  void tell(const absl::Status& status) {
    if (status.ok()) return;
    const std::string text(status.message());
    const std::string line = line_of({kOfProcess, spdlog::level::warn, text});
    std::fwrite(line.data(), 1, line.size(), stderr);
  }
  std::string line_of(const spdlog::details::log_msg& message) {
    spdlog::memory_buf_t line;
    formatter_->format(message, line);
    return {line.data(), line.size()};
  }

  const std::shared_ptr<Speakers> speakers_;
  const std::string pattern_ = environment("NEZHA_LOG_FILE");
  LogFile file_;
  bool is_tried_ = false;
};

struct Log {
  std::shared_ptr<Speakers> speakers = std::make_shared<Speakers>();
  // The logger is not registered with spdlog: the program that links nezha may have a "nezha"
  // logger of its own.
  spdlog::logger logger{kOfProcess, std::make_shared<Sink>(speakers)};

  Log() {
    auto formatter = std::make_unique<spdlog::pattern_formatter>();
    formatter->add_flag<Who>('*', speakers).set_pattern("%Y-%m-%d %H:%M:%S.%e nezha %l [%*]: %v");
    logger.set_formatter(std::move(formatter));
    // spdlog's own handler writes to stderr.
    logger.set_error_handler([](const std::string& /*why*/) {});
    logger.set_level(spdlog::level::from_str(environment("NEZHA_LOG")));
  }
};

Log& log_of_process() {
  static PerProcess<Log> log;
  return log.get();
}

}  // namespace

spdlog::logger& log() { return log_of_process().logger; }

RankLog log_of_rank(int rank, int size) {
  RankLog made = log_of_part(absl::StrCat("rank ", rank, " of ", size));
  log_of_process().speakers->add(made, rank);
  return made;
}

RankLog log_of_part(const std::string& rank_of) { return log().clone(rank_of); }

}  // namespace nezha
