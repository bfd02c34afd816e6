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

#include "nezha/context.h"
#include "nezha/types.h"

namespace nezha::preload {

// Nothing where Gloo's own algorithm is to run: NEZHA_GLOO_COLLECTIVES says so, or the context is
// not over nezha's device. The answer is the same on every rank.
std::shared_ptr<Context> context_of(const std::shared_ptr<::gloo::Context>& context);

// A type whose elements have that size, for what is only moved or is added up by a function of the
// user's. Nothing if there is none.
std::optional<DataType> type_of(size_t element_size);

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

// Throws what Gloo throws: its users look for "Timed out" in the text.
void run(std::chrono::milliseconds timeout, const std::function<void()>& collective);

}  // namespace nezha::preload
