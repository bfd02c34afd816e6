// SPDX-License-Identifier: Apache-2.0
#include "nezha/context.h"

#include <utility>

#include "context/context_impl.h"
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

Context::Context(std::unique_ptr<ContextImpl> impl) : impl_(std::move(impl)) {}

Context::~Context() {
  if (impl_->is_inherited()) static_cast<void>(impl_.release());
}

ContextImpl& Context::impl() const {
  impl_->check_process();
  return *impl_;
}

std::shared_ptr<Context> ContextImpl::in_context(std::unique_ptr<ContextImpl> impl) {
  return std::shared_ptr<Context>(new Context(std::move(impl)));
}

std::shared_ptr<Context> Context::create(std::shared_ptr<::gloo::rendezvous::Store> store,
                                         const ContextOptions& options) {
  auto impl = std::make_unique<ContextImpl>(std::move(store), options);
  impl->join();
  return ContextImpl::in_context(std::move(impl));
}

std::shared_ptr<Context> Context::split(int color, int key) {
  auto made = impl().split(color, key);
  if (made == nullptr) return nullptr;
  return ContextImpl::in_context(std::move(made));
}

std::shared_ptr<Context> Context::dup() { return split(0, rank()); }

int Context::rank() const { return impl_->options().rank; }
int Context::size() const { return impl_->options().size; }
std::chrono::milliseconds Context::timeout() const { return *impl_->options().timeout; }
std::vector<RailStats> Context::rails() const { return impl().rails(); }
BalanceStats Context::balance() const { return impl().balance(); }

void allreduce(const AllreduceOptions& options) { ContextImpl::of(options).run(options); }
Handle allreduceAsync(const AllreduceOptions& options) {
  return ContextImpl::of(options).run_async(options);
}

void barrier(const BarrierOptions& options) { ContextImpl::of(options).run(options); }
Handle barrierAsync(const BarrierOptions& options) {
  return ContextImpl::of(options).run_async(options);
}

void broadcast(const BroadcastOptions& options) { ContextImpl::of(options).run(options); }
Handle broadcastAsync(const BroadcastOptions& options) {
  return ContextImpl::of(options).run_async(options);
}

void allgather(const AllgatherOptions& options) { ContextImpl::of(options).run(options); }
Handle allgatherAsync(const AllgatherOptions& options) {
  return ContextImpl::of(options).run_async(options);
}

void reduceScatter(const ReduceScatterOptions& options) { ContextImpl::of(options).run(options); }
Handle reduceScatterAsync(const ReduceScatterOptions& options) {
  return ContextImpl::of(options).run_async(options);
}

void alltoall(const AlltoallOptions& options) { ContextImpl::of(options).run(options); }
Handle alltoallAsync(const AlltoallOptions& options) {
  return ContextImpl::of(options).run_async(options);
}

void alltoallv(const AlltoallvOptions& options) { ContextImpl::of(options).run(options); }
Handle alltoallvAsync(const AlltoallvOptions& options) {
  return ContextImpl::of(options).run_async(options);
}

void gather(const GatherOptions& options) { ContextImpl::of(options).run(options); }
Handle gatherAsync(const GatherOptions& options) {
  return ContextImpl::of(options).run_async(options);
}

void gatherv(const GathervOptions& options) { ContextImpl::of(options).run(options); }
Handle gathervAsync(const GathervOptions& options) {
  return ContextImpl::of(options).run_async(options);
}

void scatter(const ScatterOptions& options) { ContextImpl::of(options).run(options); }
Handle scatterAsync(const ScatterOptions& options) {
  return ContextImpl::of(options).run_async(options);
}

void scatterv(const ScattervOptions& options) { ContextImpl::of(options).run(options); }
Handle scattervAsync(const ScattervOptions& options) {
  return ContextImpl::of(options).run_async(options);
}

void send(const SendOptions& options) { ContextImpl::of(options).run(options); }
Handle sendAsync(const SendOptions& options) { return ContextImpl::of(options).run_async(options); }

int recv(const RecvOptions& options) { return ContextImpl::of(options).receive(options); }
Handle recvAsync(const RecvOptions& options) { return ContextImpl::of(options).run_async(options); }

void reduce(const ReduceOptions& options) { ContextImpl::of(options).run(options); }
Handle reduceAsync(const ReduceOptions& options) {
  return ContextImpl::of(options).run_async(options);
}

}  // namespace nezha
