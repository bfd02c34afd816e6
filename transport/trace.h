// SPDX-License-Identifier: Apache-2.0
// Logs what channels do with segments and messages, a line for each step, at level trace.
// tests/cluster/replay.py, which lists the fields of the lines, checks such logs of all ranks
// against the rules of tests/model/channel.pml. At any other level a step costs a branch.
#pragma once

#include <utility>

#include "common/log.h"

namespace nezha {

// Is called under Progress's lock, so that the lines are in the order of the steps.
template <typename... Args>
void trace_step(spdlog::format_string_t<Args...> format, Args&&... args) {
  static const bool kIsOn = log().should_log(spdlog::level::trace);
  if (kIsOn) log().trace(format, std::forward<Args>(args)...);
}

}  // namespace nezha
