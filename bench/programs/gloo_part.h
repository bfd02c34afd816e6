// SPDX-License-Identifier: Apache-2.0
// One Gloo context's part in a collective, run as a user of Gloo would run it.
#pragma once

#include <gloo/context.h>

#include <cstddef>
#include <memory>

#include "bench/measurement/runner.h"

namespace nezha::bench {

// Elements of a vector, or of each of its blocks if it is made of blocks.
struct Range {
  size_t begin = 0;
  size_t end = 0;
};

// Prepares the part of the request that has this range. Only these elements of the result are
// valid. An allreduce uses the algorithm bcube if `bcube`, and else the ring.
//
// Gloo takes a vector of blocks as one piece of memory. A part that has less than all of each block
// copies its pieces together before a reduce_scatter and an alltoall, and apart after an allgather,
// an alltoall and a gather.
//
// Debian's Gloo has no function for reduce_scatter, and its class ReduceScatterHalvingDoubling may
// move a result to where it is still sending from, so that sums are wrong now and then. An
// allreduce of the whole vector and a copy of the rank's block replace it, as in PyTorch's backend.
std::unique_ptr<Operation> gloo_part(const std::shared_ptr<::gloo::Context>& context,
                                     const Request& request, Range range, bool bcube);

}  // namespace nezha::bench
