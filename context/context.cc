#include "nezha/context.h"

#include <utility>

#include "context/context_impl.h"
#include "nezha/allreduce.h"
#include "nezha/barrier.h"
#include "nezha/broadcast.h"
#include "nezha/reduce.h"

namespace nezha {

Context::Context(std::unique_ptr<ContextImpl> impl) : impl_(std::move(impl)) {}
Context::~Context() = default;

std::shared_ptr<Context> Context::create(std::shared_ptr<::gloo::rendezvous::Store> store,
                                         const ContextOptions& options) {
  auto impl = std::make_unique<ContextImpl>(std::move(store), options);
  impl->join();
  return std::shared_ptr<Context>(new Context(std::move(impl)));
}

int Context::rank() const { return impl_->options().rank; }
int Context::size() const { return impl_->options().size; }
std::chrono::milliseconds Context::timeout() const { return impl_->options().timeout; }
std::vector<RailStats> Context::rails() const { return impl_->rails(); }

Handle allreduceAsync(const AllreduceOptions& options) {
  return options.context_->impl().run_async(options);
}
void allreduce(const AllreduceOptions& options) { options.context_->impl().run(options); }

Handle barrierAsync(const BarrierOptions& options) {
  return options.context_->impl().run_async(options);
}
void barrier(const BarrierOptions& options) { options.context_->impl().run(options); }

Handle broadcastAsync(const BroadcastOptions& options) {
  return options.context_->impl().run_async(options);
}
void broadcast(const BroadcastOptions& options) { options.context_->impl().run(options); }

Handle reduceAsync(const ReduceOptions& options) {
  return options.context_->impl().run_async(options);
}
void reduce(const ReduceOptions& options) { options.context_->impl().run(options); }

}  // namespace nezha
