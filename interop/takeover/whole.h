// SPDX-License-Identifier: Apache-2.0
// A collective of Gloo's as a whole, carried out by nezha.
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

// Nothing where Gloo's own algorithm is to run: NEZHA_GLOO_COLLECTIVES says so, or the context is
// not over nezha's device. The answer is the same on every rank.
std::shared_ptr<Context> context_of(const std::shared_ptr<::gloo::Context>& context);

// How nezha is to combine elements of that size, in bytes, by that function: by an operation of its
// own if the function is known to be one, else by calling it. Nothing if there is no function, or
// if nezha has no elements of that size.
std::optional<Reduction> reduction_by(const ReduceFunction& function, size_t element_size);

// Makes it the options' reduction.
template <typename Options>
void set_reduction(Options& options, const Reduction& reduction, const ReduceFunction& function) {
  if (reduction.operation == ReduceOperation::kCustom) {
    options.setReduceFunction(function);
  } else {
    options.setOperation(reduction.operation);
  }
}

// How Gloo's options look to nezha's.
template <typename Options>
Options options_for(const std::shared_ptr<Context>& context, uint32_t tag,
                    std::chrono::milliseconds timeout) {
  Options options(context);
  options.setTag(tag);
  // Gloo takes 0 for no time at all.
  options.setTimeout(std::max(timeout, std::chrono::milliseconds(1)));
  return options;
}

// Throws what Gloo throws. Its users look for " Timed out" in the text: Gloo begins with a place in
// its source.
void run(std::chrono::milliseconds timeout, const std::function<void()>& collective);

}  // namespace nezha::takeover
