// SPDX-License-Identifier: Apache-2.0
// The library's log. NEZHA_LOG sets its level, and NEZHA_LOG_FILE sends it to a file in place of
// standard error. A line says when it was written, how grave it is and who says it:
//
//   2026-11-26 18:20:01.123 nezha warning [rank 3 of 8, host node7, pid 4242]: the text
#pragma once

#include <spdlog/spdlog.h>

#include <memory>
#include <string>

namespace nezha {

// The log of the process: of what all of its contexts share. While all logs that log_of_rank() has
// made and that still live are of one rank, the lines name that rank, and go on to when none lives
// any more. Else they name the host and the process alone. Thread-safe. Made on first use.
spdlog::logger& log();

// The log of a context, whose lines name its rank. Keeps the level that log() has now.
using RankLog = std::shared_ptr<spdlog::logger>;
RankLog log_of_rank(int rank, int size);
// The log of a context that was split from another one. `rank_of`: "rank 1 of 2 (split from ...)".
RankLog log_of_part(const std::string& rank_of);

}  // namespace nezha
