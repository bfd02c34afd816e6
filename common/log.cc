#include "common/log.h"

#include <pthread.h>
#include <spdlog/sinks/base_sink.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <ctime>
#include <memory>
#include <mutex>
#include <string>

#include "common/environment.h"
#include "common/fork.h"

namespace nezha {
namespace {

// While this lives, a write of this thread to a pipe or socket that nobody reads is an error and no
// more: the signal that comes with the error would end the program.
class NoSigpipe {
 public:
  NoSigpipe() {
    sigemptyset(&signal_);
    sigaddset(&signal_, SIGPIPE);
    sigset_t pending;
    sigemptyset(&pending);
    sigpending(&pending);
    was_pending_ = sigismember(&pending, SIGPIPE) == 1;
    pthread_sigmask(SIG_BLOCK, &signal_, &mask_);
  }
  ~NoSigpipe() {
    const timespec at_once{};
    // A signal that was pending before is the program's.
    while (!was_pending_ && sigtimedwait(&signal_, nullptr, &at_once) < 0 && errno == EINTR) {
    }
    pthread_sigmask(SIG_SETMASK, &mask_, nullptr);
  }
  NoSigpipe(const NoSigpipe&) = delete;
  NoSigpipe& operator=(const NoSigpipe&) = delete;

 private:
  sigset_t signal_;
  sigset_t mask_;
  bool was_pending_;
};

// spdlog's own has a lock that all loggers share: in a child of fork() it may be held for ever. A
// line that cannot be written is dropped.
class StandardError final : public spdlog::sinks::base_sink<std::mutex> {
  void sink_it_(const spdlog::details::log_msg& message) override {
    spdlog::memory_buf_t line;
    formatter_->format(message, line);
    const NoSigpipe quietly;
    std::fwrite(line.data(), 1, line.size(), stderr);
  }
  void flush_() override {
    const NoSigpipe quietly;
    std::fflush(stderr);
  }
};

struct Log {
  // Not registered with spdlog: the program that links nezha may have a "nezha" logger of its own.
  spdlog::logger logger{"nezha", std::make_shared<StandardError>()};

  Log() {
    logger.set_pattern("[%H:%M:%S.%e] %n %l: %v");
    // spdlog's own handler writes to stderr.
    logger.set_error_handler([](const std::string& /*why*/) {});
    logger.set_level(spdlog::level::from_str(environment("NEZHA_LOG")));
  }
};

}  // namespace

spdlog::logger& log() {
  static PerProcess<Log> log;
  return log.get().logger;
}

}  // namespace nezha
