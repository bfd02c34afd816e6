// SPDX-License-Identifier: Apache-2.0
// Tells the user if this library is of no use to the process that it was preloaded into.
#pragma once

namespace nezha::preload {

// Notes that the program has made a device through libgloo. Thread-safe.
void note_use();

}  // namespace nezha::preload
