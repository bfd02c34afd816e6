#include "common/log.h"

#include <spdlog/sinks/base_sink.h>

#include <cstdio>
#include <memory>
#include <mutex>

#include "common/environment.h"
#include "common/fork.h"

namespace nezha {
namespace {

// spdlog's own has a lock that all loggers share: in a child of fork() it may be held for ever.
class StandardError final : public spdlog::sinks::base_sink<std::mutex> {
  void sink_it_(const spdlog::details::log_msg& message) override {
    spdlog::memory_buf_t line;
    formatter_->format(message, line);
    std::fwrite(line.data(), 1, line.size(), stderr);
  }
  void flush_() override { std::fflush(stderr); }
};

struct Log {
  // Not registered with spdlog: the program that links nezha may have a "nezha" logger of its own.
  spdlog::logger logger{"nezha", std::make_shared<StandardError>()};

  Log() {
    logger.set_pattern("[%H:%M:%S.%e] %n %l: %v");
    logger.set_level(spdlog::level::from_str(environment("NEZHA_LOG")));
  }
};

}  // namespace

spdlog::logger& log() {
  static PerProcess<Log> log;
  return log.get().logger;
}

}  // namespace nezha
