// SPDX-License-Identifier: Apache-2.0
// Helpers to carry out a whole collective of Gloo's by nezha.
#pragma once

#include <gloo/context.h>
#include <gloo/transport/unbound_buffer.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>

#include "interop/takeover/program.h"
#include "nezha/context.h"
#include "nezha/types.h"

namespace nezha::takeover {

// Returns nezha's context, or null if Gloo's own algorithm is to run: NEZHA_GLOO_COLLECTIVES says
// so, or the context does not use nezha's device. The answer is the same on every rank.
std::shared_ptr<Context> context_of(const std::shared_ptr<::gloo::Context>& context);

// Returns how nezha combines elements of that size, in bytes, by that function: by an operation of
// its own if the function is known to be one, otherwise by calling the function. Returns nothing if
// there is no function, or if nezha has no elements of that size.
std::optional<Reduction> reduction_by(const ReduceFunction& function, size_t element_size);

// Sets the options' reduction.
template <typename Options>
void set_reduction(Options& options, const Reduction& reduction, const ReduceFunction& function) {
  if (reduction.operation == ReduceOperation::kCustom) {
    options.setReduceFunction(function);
  } else {
    options.setOperation(reduction.operation);
  }
}

// Returns nezha's options for the context, tag and timeout of a collective of Gloo's.
template <typename Options>
Options options_for(const std::shared_ptr<Context>& context, uint32_t tag,
                    std::chrono::milliseconds timeout) {
  Options options(context);
  options.setTag(tag);
  // nezha needs a positive timeout, while 0 means no time at all in Gloo.
  options.setTimeout(std::max(timeout, std::chrono::milliseconds(1)));
  return options;
}

// Runs the collective, and throws what Gloo throws. Gloo's users look for " Timed out" in the text,
// because Gloo's texts begin with a place in its source.
void run(std::chrono::milliseconds timeout, const std::function<void()>& collective);

}  // namespace nezha::takeover
