// SPDX-License-Identifier: Apache-2.0
/// The environment variables that nezha reads.
#pragma once

#include <string>

#include "nezha/export.h"

namespace nezha {

/// Returns a text about every NEZHA_ variable: its name, what it does, which values it may have,
/// its default, and whether it must be the same on all ranks. Lines have at most 80 characters.
/// `nezha-bench --help-env` prints it. Thread-safe.
NEZHA_EXPORT std::string environmentHelp();

}  // namespace nezha
