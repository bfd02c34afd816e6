// SPDX-License-Identifier: Apache-2.0
// Makes requests from the options of send and recv.
#include <algorithm>
#include <limits>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "context/raise.h"
#include "context/requests.h"
#include "nezha/errors.h"

namespace nezha {

Request RequestMaker::make(const SendOptions& options) const {
  constexpr absl::string_view kName = "send";
  const int rank = options.destination_;
  check_ranks(kName, "destination", {rank});
  check_memory_of(kName, "input", options.input_, /*is_written=*/false);
  return make_exchange(kName, options,
                       {.rank = setup_.rank(),
                        .peers = {rank},
                        .tag = options.tag_,
                        .input = static_cast<const std::byte*>(options.input_.data),
                        .bytes = options.input_.bytes});
}

Request RequestMaker::make(const RecvOptions& options) const {
  constexpr absl::string_view kName = "recv";
  std::vector<int> sources = options.sources_;
  if (options.is_any_) {
    sources.resize(static_cast<size_t>(setup_.size()));
    std::iota(sources.begin(), sources.end(), 0);
  }
  if (sources.empty()) refuse(kName, "there is no source; set one, several or any");
  check_ranks(kName, "source", sources);
  check_memory_of(kName, "output", options.output_, /*is_written=*/true);
  return make_exchange(kName, options,
                       {.is_send = false,
                        .rank = setup_.rank(),
                        .peers = std::move(sources),
                        .is_from_any = options.is_any_,
                        .tag = options.tag_,
                        .output = static_cast<std::byte*>(options.output_.data),
                        .bytes = options.output_.bytes,
                        .may_be_shorter = options.may_be_shorter_});
}

void RequestMaker::check_ranks(absl::string_view name, absl::string_view role,
                               std::vector<int> ranks) const {
  std::sort(ranks.begin(), ranks.end());
  for (size_t i = 0; i < ranks.size(); ++i) {
    if (ranks[i] < 0 || ranks[i] >= setup_.size()) {
      refuse(name, absl::StrCat("the ", role, " is rank ", ranks[i], " of ", setup_.size(),
                                "; set one of 0 to ", setup_.size() - 1));
    }
    if (i > 0 && ranks[i] == ranks[i - 1]) {
      refuse(name, absl::StrCat("rank ", ranks[i], " is a ", role, " twice; name it once"));
    }
  }
}

template <typename Memory>
void RequestMaker::check_memory_of(absl::string_view name, absl::string_view what,
                                   const Memory& memory, bool is_written) const {
  if (!memory.is_set) refuse(name, absl::StrCat("there is no ", what, "; set one"));
  if (memory.bytes == 0) return;
  if (memory.bytes > static_cast<size_t>(std::numeric_limits<ptrdiff_t>::max())) {
    refuse(name, absl::StrCat("the ", what, " has more bytes than memory has, or an unknown type"));
  }
  if (memory.data == nullptr) refuse(name, absl::StrCat("the ", what, " is a null pointer"));
  if (!setup_.checks_pointers) return;
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

void RequestMaker::check_tag(const PointToPointOptions& options) const {
  if (options.tag_ < kEndOfExchangeTags) return;
  throw InvalidArgument(
      prefixed(setup_.rank_of,
               absl::StrCat("the tag ", options.tag_, " is too large; take one below 2^62")));
}

Request RequestMaker::make_exchange(absl::string_view name, const PointToPointOptions& options,
                                    Exchange::Terms terms) const {
  const auto timeout = options.timeout_.value_or(*setup_.options.timeout);
  if (timeout.count() <= 0) {
    refuse(name, absl::StrCat("the timeout is ", timeout.count(), " ms; give a positive one"));
  }
  Request request;
  request.operation.elements = terms.bytes;
  request.operation.element_size = 1;
  request.deadline = now() + to_nanos(timeout);
  request.timeout = timeout;
  request.polls = setup_.options.polling == Polling::kLatencyFirst || terms.bytes <= kShort;
  request.exchange = std::make_shared<Exchange>(std::move(terms), loopback_);
  return request;
}

}  // namespace nezha
