// SPDX-License-Identifier: Apache-2.0
// Chooses the cores for a rail's own thread if the user names none.
#pragma once

#include <vector>

#include "common/cpus.h"

namespace nezha {

// Deals the cores of `free` out, so that each rail has cores of its own. `near` has for each rail
// the cores near its NIC, or none if they are not known. A rail gets only near cores if any of them
// are in `free`. Each rail gets at least one core: with more rails than cores, some share one.
// `free` is not empty.
std::vector<Cpus> deal_cores(const std::vector<Cpus>& near, const Cpus& free);

}  // namespace nezha
