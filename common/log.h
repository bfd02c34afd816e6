// SPDX-License-Identifier: Apache-2.0
// The library's log. NEZHA_LOG sets its level, and NEZHA_LOG_FILE sends it to a file instead of
// standard error. A line contains the time, the level and the writer:
//
//   2026-11-26 18:20:01.123 nezha warning [rank 3 of 8, host node7, pid 4242]: the text
#pragma once

#include <spdlog/spdlog.h>

#include <memory>
#include <string>

namespace nezha {

// Returns the log of the process, for everything that its contexts share. Its lines name a rank as
// long as all living logs that log_of_rank() has made belong to that rank, and also after the last
// of them is gone. Otherwise they name only the host and the process. Thread-safe. It is made on
// first use.
spdlog::logger& log();

// The log of a context. Its lines name the context's rank. It keeps the level that log() has now.
using RankLog = std::shared_ptr<spdlog::logger>;
RankLog log_of_rank(int rank, int size);
// Returns the log of a context that was split from another one. `rank_of`: "rank 1 of 2 (split from
// ...)".
RankLog log_of_part(const std::string& rank_of);

}  // namespace nezha
