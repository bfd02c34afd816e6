// What the options of reduce, broadcast and barrier ask a context for.
#include "absl/strings/str_cat.h"
#include "context/context_impl.h"

namespace nezha {

RunningOperation::Request ContextImpl::request(const ReduceOptions& options) const {
  check_reduction("reduce", options);
  auto request = request_rooted(options, Collective::kReduce, /*contributes=*/true,
                                /*has_result=*/options.root_ == options_.rank);
  Operation& op = request.operation;
  op.operation = options.operation_;
  op.commutative = options.commutative_;
  if (op.operation == ReduceOperation::kCustom) request.function = options.function_;
  complete(request, options);
  return request;
}

RunningOperation::Request ContextImpl::request(const BroadcastOptions& options) const {
  const bool is_root = options.root_ == options_.rank;
  auto request = request_rooted(options, Collective::kBroadcast, /*contributes=*/is_root,
                                /*has_result=*/!is_root);
  // The engine has no result for the root.
  const Operation& op = request.operation;
  auto* output = static_cast<std::byte*>(options.output_.data);
  if (is_root && op.elements > 0 && options.output_.is_set && output != op.input) {
    request.copies.push_back(output);
  }
  complete(request, options);
  return request;
}

RunningOperation::Request ContextImpl::request_rooted(const RootedOptions& options,
                                                      Collective collective, bool contributes,
                                                      bool has_result) const {
  const absl::string_view name = collective == Collective::kReduce ? "reduce" : "broadcast";
  if (options.root_ < 0 || options.root_ >= options_.size) {
    refuse(name, absl::StrCat("the root is rank ", options.root_, " of ", options_.size,
                              "; set one of 0 to ", options_.size - 1));
  }
  const auto& input = options.input_;
  const auto& output = options.output_;
  if (contributes && !input.is_set && !output.is_set) refuse(name, "no input; set one");
  if (has_result && !output.is_set) refuse(name, "no output; set one");

  const bool uses_input = contributes && input.is_set;
  // Other outputs than a result's may be what is broadcast, or where the root wants it too.
  const bool uses_output = has_result || !uses_input || collective == Collective::kBroadcast;
  if (uses_input && uses_output && output.is_set) {
    check_alike(name, input.elements, output.elements, input.type, output.type);
  }
  RunningOperation::Request request;
  Operation& op = request.operation;
  op.collective = collective;
  op.root = options.root_;
  op.elements = uses_input ? input.elements : output.elements;
  op.type = uses_input ? input.type : output.type;
  op.element_size = size_of(op.type);
  std::vector<const void*> inputs;
  std::vector<void*> outputs;
  if (uses_input) inputs.push_back(input.data);
  if (uses_output && output.is_set) outputs.push_back(output.data);
  check_memory(name, inputs, outputs, op.elements, op.type);
  if (contributes) {
    op.input = static_cast<const std::byte*>(uses_input ? input.data : output.data);
  }
  if (has_result) op.output = static_cast<std::byte*>(output.data);
  return request;
}

RunningOperation::Request ContextImpl::request(const BarrierOptions& options) const {
  RunningOperation::Request request;
  request.operation.collective = Collective::kBarrier;
  request.operation.element_size = 1;
  complete(request, options);
  return request;
}

}  // namespace nezha
