// SPDX-License-Identifier: Apache-2.0
// Captures the log for tests of log messages.
#pragma once

#include <spdlog/sinks/ostream_sink.h>

#include <memory>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "common/log.h"

namespace nezha::testing {

// Redirects the log, at its default level, while it exists.
class LogLines {
 public:
  LogLines() : level_(log().level()) {
    sinks_.push_back(std::make_shared<spdlog::sinks::ostream_sink_mt>(text_));
    log().sinks().swap(sinks_);
    log().set_pattern("%l: %v");
    log().set_level(spdlog::level::warn);
  }
  ~LogLines() {
    log().sinks().swap(sinks_);
    log().set_level(level_);
  }
  LogLines(const LogLines&) = delete;
  LogLines& operator=(const LogLines&) = delete;

  // The lines since the last call that contain `words`.
  std::vector<std::string> take(const std::string& words = "") {
    std::vector<std::string> lines;
    for (std::string line; std::getline(text_, line);) {
      if (line.find(words) != std::string::npos) lines.push_back(line);
    }
    text_.clear();
    return lines;
  }

 private:
  std::stringstream text_;
  std::vector<spdlog::sink_ptr> sinks_;
  spdlog::level::level_enum level_;
};

}  // namespace nezha::testing
