// SPDX-License-Identifier: Apache-2.0
// What the options of send and recv ask a context for.
#include <algorithm>
#include <limits>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "context/context_impl.h"

namespace nezha {
namespace {

// Bytes; of operations that end sooner than a thread sleeps and is woken a few times.
constexpr size_t kShort = 16 << 10;

}  // namespace

std::shared_ptr<RunningOperation> ContextImpl::started(const SendOptions& options) {
  constexpr absl::string_view kName = "send";
  const int rank = options.destination_;
  check_ranks(kName, "destination", {rank});
  check_memory_of(kName, "input", options.input_, /*is_written=*/false);
  return start_exchange(kName, options,
                        {.rank = options_.rank,
                         .peers = {rank},
                         .tag = options.tag_,
                         .input = static_cast<const std::byte*>(options.input_.data),
                         .bytes = options.input_.bytes});
}

std::shared_ptr<RunningOperation> ContextImpl::started(const RecvOptions& options) {
  constexpr absl::string_view kName = "recv";
  std::vector<int> sources = options.sources_;
  if (options.is_any_) {
    sources.resize(static_cast<size_t>(options_.size));
    std::iota(sources.begin(), sources.end(), 0);
  }
  if (sources.empty()) refuse(kName, "no source; set one, several or any");
  check_ranks(kName, "source", sources);
  check_memory_of(kName, "output", options.output_, /*is_written=*/true);
  return start_exchange(kName, options,
                        {.is_send = false,
                         .rank = options_.rank,
                         .peers = std::move(sources),
                         .is_from_any = options.is_any_,
                         .tag = options.tag_,
                         .output = static_cast<std::byte*>(options.output_.data),
                         .bytes = options.output_.bytes});
}

void ContextImpl::check_ranks(absl::string_view name, absl::string_view role,
                              std::vector<int> ranks) const {
  std::sort(ranks.begin(), ranks.end());
  for (size_t i = 0; i < ranks.size(); ++i) {
    if (ranks[i] < 0 || ranks[i] >= options_.size) {
      refuse(name, absl::StrCat("the ", role, " is rank ", ranks[i], " of ", options_.size,
                                "; set one of 0 to ", options_.size - 1));
    }
    if (i > 0 && ranks[i] == ranks[i - 1]) {
      refuse(name, absl::StrCat("rank ", ranks[i], " is a ", role, " twice; name it once"));
    }
  }
}

template <typename Memory>
void ContextImpl::check_memory_of(absl::string_view name, absl::string_view what,
                                  const Memory& memory, bool is_written) const {
  if (!memory.is_set) refuse(name, absl::StrCat("no ", what, "; set one"));
  if (memory.bytes == 0) return;
  if (memory.bytes > static_cast<size_t>(std::numeric_limits<ptrdiff_t>::max())) {
    refuse(name,
           absl::StrCat("the ", what, " has more bytes than memory has, or a type that is none"));
  }
  if (memory.data == nullptr) refuse(name, absl::StrCat("the ", what, " is a null pointer"));
  if (!checks_pointers_) return;
  std::vector<const void*> inputs;
  std::vector<void*> outputs;
  if (is_written) {
    outputs.push_back(const_cast<void*>(static_cast<const void*>(memory.data)));
  } else {
    inputs.push_back(memory.data);
  }
  const absl::Status status = check_pointers(inputs, outputs, memory.bytes);
  if (!status.ok()) refuse(name, status.message());
}

std::shared_ptr<RunningOperation> ContextImpl::start_exchange(absl::string_view name,
                                                              const PointToPointOptions& options,
                                                              Exchange::Terms terms) {
  if (terms.tag >= kEndOfExchangeTags) {
    refuse(name, absl::StrCat("the tag ", terms.tag, " is too large; take one below 2^62"));
  }
  const auto timeout = options.timeout_.value_or(*options_.timeout);
  if (timeout.count() <= 0) {
    refuse(name, absl::StrCat("a timeout of ", timeout.count(), " ms; give a positive one"));
  }
  try {
    RunningOperation::Request request;
    request.operation.elements = terms.bytes;
    request.operation.element_size = 1;
    request.deadline = now() + to_nanos(timeout);
    request.timeout = timeout;
    request.polls = options_.polling == Polling::kLatencyFirst || terms.bytes <= kShort;
    request.exchange = std::make_shared<Exchange>(std::move(terms), point_to_point_.loopback());
    return start(std::move(request));
  } catch (const std::bad_alloc&) {
    give_up(caught_status());
  }
}

}  // namespace nezha
