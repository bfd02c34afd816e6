// SPDX-License-Identifier: Apache-2.0
// Which cores a rail's own thread gets if the user names none.
#pragma once

#include <vector>

#include "common/cpus.h"

namespace nezha {

// Deals the cores of `free` out, so that rails are kept apart. `near` has for each rail the cores
// near to its NIC, empty if they are not known: a rail gets only such as long as there are any.
// No rail goes without: with more rails than cores, some share one. `free` is not empty.
std::vector<Cpus> deal_cores(const std::vector<Cpus>& near, const Cpus& free);

}  // namespace nezha
