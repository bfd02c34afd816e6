// The library's log: spdlog's "nezha" logger on stderr. NEZHA_LOG sets its level.
#pragma once

#include <spdlog/spdlog.h>

namespace nezha {

// Thread-safe. Made on first use.
spdlog::logger& log();

}  // namespace nezha
