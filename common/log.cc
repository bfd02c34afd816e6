#include "common/log.h"

#include <spdlog/sinks/stdout_sinks.h>

#include <memory>

#include "common/environment.h"

namespace nezha {

spdlog::logger& log() {
  // Not registered with spdlog: the program that links nezha may have a "nezha" logger of its own.
  static spdlog::logger& logger = *[] {
    auto made = std::make_unique<spdlog::logger>("nezha",
                                                 std::make_shared<spdlog::sinks::stderr_sink_mt>());
    made->set_pattern("[%H:%M:%S.%e] %n %l: %v");
    made->set_level(spdlog::level::from_str(environment("NEZHA_LOG")));
    return made.release();  // never destroyed: other threads may log while the process exits
  }();
  return logger;
}

}  // namespace nezha
