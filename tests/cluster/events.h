// SPDX-License-Identifier: Apache-2.0
// Prints the events of ranks in the cluster tests: one line of JSON each, which job.py reads.
#pragma once

#include <array>
#include <chrono>
#include <cstdio>
#include <exception>
#include <string>

#include "nezha/errors.h"

namespace nezha::events {

using Clock = std::chrono::steady_clock;

inline std::string json_string(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += static_cast<unsigned char>(c) < ' ' ? ' ' : c;
  }
  return out + "\"";
}

// Writes the whole line at once, so that the lines of threads do not mix.
inline void emit(const std::string& event, const std::string& members) {
  const std::string line = "{\"event\":\"" + event + "\"" + members + "}\n";
  std::fwrite(line.data(), 1, line.size(), stdout);
  std::fflush(stdout);
}

inline std::string member(const std::string& name, const std::string& json) {
  return ",\"" + name + "\":" + json;
}

inline std::string member(const std::string& name, double number) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.17g", number);
  return member(name, std::string(text.data()));
}

// The members that describe an exception.
inline std::string error_members(const std::exception& error) {
  std::string type = "other";
  if (dynamic_cast<const nezha::InvalidArgument*>(&error) != nullptr) type = "InvalidArgument";
  std::string ranks;
  if (const auto* io_error = dynamic_cast<const nezha::IoError*>(&error)) {
    type = "IoError";
    for (const int rank : io_error->ranks()) {
      ranks += (ranks.empty() ? "" : ",") + std::to_string(rank);
    }
  }
  if (dynamic_cast<const nezha::TimeoutError*>(&error) != nullptr) type = "TimeoutError";
  return member("type", json_string(type)) + member("what", json_string(error.what())) +
         member("ranks", "[" + ranks + "]");
}

inline double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

}  // namespace nezha::events
