// SPDX-License-Identifier: Apache-2.0
// nezha-bench --list-rails: shows this host's interfaces, what --rails auto makes of them, and what
// else can be a rail.
#pragma once

namespace nezha::bench {

// Prints a table. Throws IoError if the kernel does not answer.
void list_rails();

}  // namespace nezha::bench
