// SPDX-License-Identifier: Apache-2.0
// Makes requests from the options of operations, and refuses invalid options.
#pragma once

#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "context/exchange_tasks.h"
#include "context/request.h"
#include "context/setup.h"
#include "nezha/allgather.h"
#include "nezha/allreduce.h"
#include "nezha/alltoall.h"
#include "nezha/barrier.h"
#include "nezha/broadcast.h"
#include "nezha/gather.h"
#include "nezha/reduce.h"
#include "nezha/reduce_scatter.h"
#include "nezha/scatter.h"
#include "nezha/send_recv.h"

namespace nezha {

class RequestMaker {
 public:
  // Both arguments must outlive this. The setup must be complete before the first request is made.
  // Messages that this rank sends itself go through `loopback`.
  RequestMaker(const Setup& setup, Loopback& loopback) : setup_(setup), loopback_(loopback) {}

  // Returns the context that the options are for. Throws InvalidArgument if there is none.
  static Context& context_of(const CollectiveOptions& options);
  static Context& context_of(const PointToPointOptions& options);

  // Throws InvalidArgument.
  void check_tag(const CollectiveOptions& options) const;
  void check_tag(const PointToPointOptions& options) const;

  // Each of these throws InvalidArgument or std::bad_alloc. They are called without the lock.
  Request make(const AllreduceOptions& options) const;
  Request make(const ReduceOptions& options) const;
  Request make(const BroadcastOptions& options) const;
  Request make(const BarrierOptions& options) const;
  // blocks_requests.cc
  Request make(const AllgatherOptions& options) const;
  Request make(const ReduceScatterOptions& options) const;
  Request make(const AlltoallOptions& options) const;
  Request make(const AlltoallvOptions& options) const;
  Request make(const GatherOptions& options) const;
  Request make(const GathervOptions& options) const;
  Request make(const ScatterOptions& options) const;
  Request make(const ScattervOptions& options) const;
  // exchange_requests.cc
  Request make(const SendOptions& options) const;
  Request make(const RecvOptions& options) const;

 private:
  // A size in bytes. Up to this size an operation ends sooner than a thread sleeps and is woken a
  // few times.
  static constexpr size_t kShort = 16 << 10;

  Request make_blocks(const BlocksOptions& options, Collective collective) const;
  Request make_moved(const BlocksOptions& options, Collective collective) const;
  // `contributes`: this rank has an input. `has_result`: this rank gets the result.
  Request make_rooted(const RootedOptions& options, Collective collective, bool contributes,
                      bool has_result) const;

  Request make_exchange(absl::string_view name, const PointToPointOptions& options,
                        Exchange::Terms terms) const;
  void check_ranks(absl::string_view name, absl::string_view role, std::vector<int> ranks) const;
  template <typename Memory>
  void check_memory_of(absl::string_view name, absl::string_view what, const Memory& memory,
                       bool is_written) const;

  [[noreturn]] void refuse(absl::string_view collective, absl::string_view why) const;
  int checked_root(absl::string_view collective, int root) const;
  void check(const AllreduceOptions& options) const;
  void check_type(absl::string_view collective, DataType type) const;
  void check_reduction(absl::string_view collective, const ReductionOptions& options) const;
  void check_alike(absl::string_view collective, size_t elements, size_t output_elements,
                   DataType type, DataType output_type) const;
  void check_vectors(absl::string_view collective, absl::Span<const void* const> inputs,
                     absl::Span<void* const> outputs, size_t elements, DataType type) const;
  // Checks the caller's pointers, for NEZHA_CHECK_POINTERS.
  static absl::Status check_pointers(absl::Span<const void* const> inputs,
                                     absl::Span<void* const> outputs, size_t bytes);
  void complete(Request& request, const CollectiveOptions& options,
                Algorithm asked = Algorithm::kAuto) const;
  // Sets the request's input to the reduction of `inputs`, of which there is at least one.
  void fold(const std::vector<const void*>& inputs, Request& request) const;

  const Setup& setup_;
  Loopback& loopback_;
};

}  // namespace nezha
