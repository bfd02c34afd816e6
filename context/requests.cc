// SPDX-License-Identifier: Apache-2.0
#include "context/requests.h"

#include <limits>

#include "absl/strings/str_cat.h"
#include "collectives/hosts/hosts_engine.h"
#include "collectives/signature.h"
#include "context/memory.h"
#include "context/raise.h"
#include "context/split.h"
#include "nezha/errors.h"

namespace nezha {

// ---- Checks ------------------------------------------------------------------------------------

namespace {

bool overlap(const void* a, const void* b, size_t bytes) {
  const auto* x = static_cast<const std::byte*>(a);
  const auto* y = static_cast<const std::byte*>(b);
  return x < y + bytes && y < x + bytes;
}

}  // namespace

Context& RequestMaker::context_of(const CollectiveOptions& options) {
  if (options.context_ == nullptr)
    throw InvalidArgument("nezha: the options have no context; give them one");
  return *options.context_;
}

Context& RequestMaker::context_of(const PointToPointOptions& options) {
  if (options.context_ == nullptr)
    throw InvalidArgument("nezha: the options have no context; give them one");
  return *options.context_;
}

void RequestMaker::check_tag(const CollectiveOptions& options) const {
  if (options.tag_ != kOwnTag) return;
  throw InvalidArgument(
      prefixed(setup_.rank_of,
               absl::StrCat("the tag ", kOwnTag, " is reserved for nezha; choose another one")));
}

void RequestMaker::refuse(absl::string_view collective, absl::string_view why) const {
  throw InvalidArgument(prefixed(setup_.rank_of, absl::StrCat(collective, ": ", why)));
}

void RequestMaker::check(const AllreduceOptions& options) const {
  constexpr absl::string_view kName = "allreduce";
  if (options.outputs_.empty()) refuse(kName, "there is no output; set one");
  check_type(kName, options.output_type_);
  if (options.algorithm_.value_or(Algorithm::kAuto) > Algorithm::kBcube) {
    refuse(kName,
           absl::StrCat("it cannot use the algorithm ", algorithm_name(*options.algorithm_),
                        ", but only ring, recursive-doubling, halving-doubling, direct or bcube"));
  }
  check_reduction(kName, options);
  if (!options.inputs_.empty()) {
    check_alike(kName, options.elements_, options.output_elements_, options.type_,
                options.output_type_);
  }
  check_vectors(kName, options.inputs_, options.outputs_, options.output_elements_,
                options.output_type_);
}

void RequestMaker::check_type(absl::string_view collective, DataType type) const {
  if (sizeOf(type) > 0) return;
  refuse(collective, absl::StrCat("there is no type ", static_cast<int>(type)));
}

void RequestMaker::check_reduction(absl::string_view collective,
                                   const ReductionOptions& options) const {
  if (nameOf(options.operation_) == nullptr) {
    refuse(collective,
           absl::StrCat("there is no operation ", static_cast<int>(options.operation_)));
  }
  if (options.operation_ == ReduceOperation::kCustom && options.function_ == nullptr) {
    refuse(collective, "the operation is custom but has no reduce function; set one");
  }
}

void RequestMaker::check_alike(absl::string_view collective, size_t elements,
                               size_t output_elements, DataType type, DataType output_type) const {
  if (elements != output_elements) {
    refuse(collective, absl::StrCat("the inputs have ", elements, " elements and the outputs have ",
                                    output_elements, "; give both the same number"));
  }
  if (type != output_type) {
    refuse(collective, "the inputs and the outputs have different element types");
  }
}

void RequestMaker::check_vectors(absl::string_view collective, absl::Span<const void* const> inputs,
                                 absl::Span<void* const> outputs, size_t elements,
                                 DataType type) const {
  if (elements == 0) return;
  const auto refuse = [&](const std::string& why) { this->refuse(collective, why); };
  const size_t size = sizeOf(type);
  if (elements > std::numeric_limits<ptrdiff_t>::max() / size) {
    refuse(absl::StrCat(elements, " elements of ", size, " bytes are more than memory has"));
  }
  const size_t bytes = elements * size;
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (inputs[i] == nullptr) refuse(absl::StrCat("input ", i, " is a null pointer"));
  }
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (outputs[i] == nullptr) refuse(absl::StrCat("output ", i, " is a null pointer"));
    for (size_t j = 0; j < i; ++j) {
      if (overlap(outputs[i], outputs[j], bytes)) {
        refuse(absl::StrCat("outputs ", j, " and ", i, " overlap"));
      }
    }
    for (size_t j = 0; j < inputs.size(); ++j) {
      if (inputs[j] != outputs[i] && overlap(inputs[j], outputs[i], bytes)) {
        refuse(absl::StrCat("input ", j, " and output ", i, " overlap without being the same"));
      }
    }
  }
  if (!setup_.checks_pointers) return;
  const absl::Status status = check_pointers(inputs, outputs, bytes);
  if (!status.ok()) refuse(std::string(status.message()));
}

absl::Status RequestMaker::check_pointers(absl::Span<const void* const> inputs,
                                          absl::Span<void* const> outputs, size_t bytes) {
  std::vector<MemoryRange> ranges;
  const auto add = [&](absl::string_view kind, size_t i, const void* begin, bool is_written) {
    ranges.push_back(
        {absl::StrCat(kind, i), reinterpret_cast<uintptr_t>(begin), bytes, is_written});
  };
  for (size_t i = 0; i < inputs.size(); ++i) add("input ", i, inputs[i], false);
  for (size_t i = 0; i < outputs.size(); ++i) add("output ", i, outputs[i], true);
  return check_memory(ranges);
}

Request RequestMaker::make(const AllreduceOptions& options) const {
  check(options);
  Request request;
  Operation& op = request.operation;
  op.type = options.output_type_;
  op.operation = options.operation_;
  op.commutative = options.commutative_;
  op.reproducible = options.reproducible_;
  op.element_size = sizeOf(op.type);
  op.elements = options.output_elements_;
  if (op.operation == ReduceOperation::kCustom) request.function = options.function_;
  op.output = static_cast<std::byte*>(options.outputs_.front());
  for (size_t i = 1; i < options.outputs_.size(); ++i) {
    request.copies.push_back(static_cast<std::byte*>(options.outputs_[i]));
  }
  // The algorithm that the environment names is used only for operations that it can do.
  const Algorithm asked = options.algorithm_.value_or(setup_.algorithm);
  const bool serves = options.algorithm_ || asked == Algorithm::kAuto ||
                      HostsEngine::choose(asked, setup_.size(), op).ok();
  complete(request, options, serves ? asked : Algorithm::kAuto);
  if (!options.inputs_.empty()) {
    fold(options.inputs_, request);
  } else if (options.outputs_.size() == 1) {
    op.input = op.output;
  } else {
    fold({options.outputs_.begin(), options.outputs_.end()}, request);
  }
  return request;
}

// Fills in what depends on the options that all collectives have.
void RequestMaker::complete(Request& request, const CollectiveOptions& options,
                            Algorithm asked) const {
  Operation& op = request.operation;
  op.tag = options.tag_;
  const auto refuse = [&](absl::string_view why) {
    this->refuse(collective_name(op.collective, static_cast<uint32_t>(op.root)), why);
  };
  const auto timeout = options.timeout_.value_or(*setup_.options.timeout);
  if (timeout.count() <= 0) {
    refuse(absl::StrCat("the timeout is ", timeout.count(), " ms; give a positive one"));
  }
  const auto schedule = HostsEngine::choose(asked, setup_.size(), op);
  if (!schedule.ok()) refuse(schedule.status().message());
  request.plan.schedule = *schedule;
  request.is_by_size = asked == Algorithm::kAuto && op.collective == Collective::kAllreduce;
  request.signature = signature(request.plan.schedule, op);
  request.deadline = now() + to_nanos(timeout);
  request.timeout = timeout;
  request.polls = setup_.options.polling == Polling::kLatencyFirst || op.bytes() <= kShort;
}

// Reduces several inputs to one, in the order in which they were given.
void RequestMaker::fold(const std::vector<const void*>& inputs, Request& request) const {
  Operation& op = request.operation;
  op.input = static_cast<const std::byte*>(inputs.front());
  if (inputs.size() == 1 || op.elements == 0) return;
  request.read = setup_.endpoint->pool().take(op.bytes());
  const Reducer reducer(op.type, op.operation, request.function ? &request.function : nullptr,
                        setup_.size());
  std::byte* sum = request.read.data();
  request.prepared = reducer.combine(sum, inputs[0], inputs[1], op.elements);
  for (size_t i = 2; i < inputs.size(); ++i) {
    request.prepared.Update(reducer.combine(sum, sum, inputs[i], op.elements));
  }
  op.input = sum;
}

// ---- Those with a root, and the barrier --------------------------------------------------------

Request RequestMaker::make(const ReduceOptions& options) const {
  check_reduction("reduce", options);
  auto request = make_rooted(options, Collective::kReduce, /*contributes=*/true,
                             /*has_result=*/options.root_ == setup_.rank());
  Operation& op = request.operation;
  op.operation = options.operation_;
  op.commutative = options.commutative_;
  op.reproducible = options.reproducible_;
  if (op.operation == ReduceOperation::kCustom) request.function = options.function_;
  complete(request, options, options.algorithm_);
  if (options.input_.is_set) fold(options.input_.data, request);
  return request;
}

Request RequestMaker::make(const BroadcastOptions& options) const {
  const bool is_root = options.root_ == setup_.rank();
  auto request = make_rooted(options, Collective::kBroadcast, /*contributes=*/is_root,
                             /*has_result=*/!is_root);
  // The engine gives the root no result, so the root's output is a copy.
  const Operation& op = request.operation;
  auto* output = static_cast<std::byte*>(options.output_.data);
  if (is_root && op.elements > 0 && options.output_.is_set && output != op.input) {
    request.copies.push_back(output);
  }
  complete(request, options, options.algorithm_);
  return request;
}

int RequestMaker::checked_root(absl::string_view collective, int root) const {
  if (root >= 0 && root < setup_.size()) return root;
  refuse(collective, absl::StrCat("the root is rank ", root, " of ", setup_.size(),
                                  "; set one of 0 to ", setup_.size() - 1));
}

Request RequestMaker::make_rooted(const RootedOptions& options, Collective collective,
                                  bool contributes, bool has_result) const {
  const absl::string_view name = collective == Collective::kReduce ? "reduce" : "broadcast";
  const int root = checked_root(name, options.root_);
  const auto& input = options.input_;
  const auto& output = options.output_;
  if (contributes && !input.is_set && !output.is_set) refuse(name, "there is no input; set one");
  if (has_result && !output.is_set) refuse(name, "there is no output; set one");

  const bool uses_input = contributes && input.is_set;
  // The output of a broadcast's root may hold what is broadcast, or be where the root wants a copy.
  const bool uses_output = has_result || !uses_input || collective == Collective::kBroadcast;
  if (uses_input && uses_output && output.is_set) {
    check_alike(name, input.elements, output.elements, input.type, output.type);
  }
  Request request;
  Operation& op = request.operation;
  op.collective = collective;
  op.root = root;
  op.elements = uses_input ? input.elements : output.elements;
  op.type = uses_input ? input.type : output.type;
  check_type(name, op.type);
  op.element_size = sizeOf(op.type);
  absl::Span<const void* const> inputs;
  absl::Span<void* const> outputs;
  if (uses_input) inputs = input.data;
  if (uses_output && output.is_set) outputs = {&output.data, 1};
  check_vectors(name, inputs, outputs, op.elements, op.type);
  if (contributes) {
    op.input = static_cast<const std::byte*>(uses_input ? input.data.front() : output.data);
  }
  if (has_result) op.output = static_cast<std::byte*>(output.data);
  return request;
}

Request RequestMaker::make(const BarrierOptions& options) const {
  Request request;
  request.operation.collective = Collective::kBarrier;
  request.operation.element_size = 1;
  complete(request, options);
  return request;
}

}  // namespace nezha
