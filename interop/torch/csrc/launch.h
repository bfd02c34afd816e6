// SPDX-License-Identifier: Apache-2.0
// Begins each of the process group's operations.
#pragma once

#include <utility>

#include "interop/torch/csrc/process_group.h"

namespace nezha_torch {

// `start` is one of nezha's functions that start an operation.
template <typename Terms, typename Start>
WorkPtr ProcessGroup::begin(c10::intrusive_ptr<Work> work, Terms& terms,
                            std::chrono::milliseconds timeout, Start start) {
  terms.setTimeout(deadline(timeout));
  work->begin(start(terms));
  return work;
}

}  // namespace nezha_torch
