// SPDX-License-Identifier: Apache-2.0
// Dissemination barrier: at step k rank r tells rank r + 2^k (modulo n) that it has entered, once
// it has heard from rank r - 2^(k-1), and with it from the 2^k - 1 ranks before itself. So after
// ceil(log2(n)) steps, for any n, a rank knows that all have entered. (D. Hensgen, R. Finkel, U.
// Manber: Two algorithms for barrier synchronization, 1988.)
#pragma once

#include "collectives/hosts/schedule.h"

namespace nezha {

// Its messages have no bytes: it is for an operation of no elements.
Schedule dissemination(int rank, int size);

}  // namespace nezha
