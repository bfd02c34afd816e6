// SPDX-License-Identifier: Apache-2.0
// Describes a new context in the log.
#pragma once

#include "common/cores.h"
#include "context/setup.h"

namespace nezha {

// Describes the context. Is called without the lock.
void announce(const Setup& setup, const CoreShare& share);

}  // namespace nezha
