#include "nezha/context.h"

#include <utility>

#include "context/context_impl.h"
#include "nezha/allreduce.h"
#include "nezha/errors.h"

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
std::chrono::milliseconds Context::timeout() const { return *impl_->options().timeout; }
std::vector<RailStats> Context::rails() const { return impl_->rails(); }

namespace {

ContextImpl& impl_of(const std::shared_ptr<Context>& context) {
  if (context == nullptr) throw InvalidArgument("nezha: allreduce: no context");
  return context->impl();
}

}  // namespace

Handle allreduceAsync(const AllreduceOptions& options) {
  return impl_of(options.context_).allreduce_async(options);
}

void allreduce(const AllreduceOptions& options) { impl_of(options.context_).allreduce(options); }

}  // namespace nezha
