// SPDX-License-Identifier: Apache-2.0
// The log tells of a context when it is made.
#pragma once

#include "common/cores.h"
#include "context/setup.h"

namespace nezha {

// Not under the lock.
void announce(const Setup& setup, const CoreShare& share);

}  // namespace nezha
