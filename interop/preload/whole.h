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

// Gloo tells operations apart by their kind and their tag, nezha by their tag alone: so each kind
// has other tags.
enum class Kind : uint32_t {
  kAllreduce,
  kReduce,
  kBroadcast,
  kAllgather,
  kAllgatherv,
  kAlltoall,
  kAlltoallv,
  kGather,
  kScatter,
  kBarrier,
};

// Nothing where Gloo's own algorithm is to run: NEZHA_GLOO_COLLECTIVES says so, or the context is
// not over nezha's device. The answer is the same on every rank.
std::shared_ptr<Context> context_of(const std::shared_ptr<::gloo::Context>& context);

// A type whose elements have that size, for what is only moved or is added up by a function of the
// user's. Nothing if there is none.
std::optional<DataType> type_of(size_t element_size);

// How Gloo's options look to nezha's.
template <typename Options>
Options options_for(const std::shared_ptr<Context>& context, Kind kind, uint32_t tag,
                    std::chrono::milliseconds timeout) {
  Options options(context);
  options.setTag(tag ^ (static_cast<uint32_t>(kind) << 28));
  // Gloo takes 0 for no time at all.
  options.setTimeout(std::max(timeout, std::chrono::milliseconds(1)));
  return options;
}

// Throws what Gloo throws: its users look for "Timed out" in the text.
void run(std::chrono::milliseconds timeout, const std::function<void()>& collective);

}  // namespace nezha::preload
