// SPDX-License-Identifier: Apache-2.0
// The process group's collectives that combine elements.
#include <c10/core/GradMode.h>
#include <nezha/allgather.h>
#include <nezha/allreduce.h>
#include <nezha/reduce.h>
#include <nezha/reduce_scatter.h>

#include <numeric>
#include <torch/csrc/distributed/c10d/Utils.hpp>
#include <utility>

#include "interop/torch/csrc/checks.h"
#include "interop/torch/csrc/launch.h"
#include "interop/torch/csrc/reductions.h"

namespace nezha_torch {
namespace {

using std::chrono::milliseconds;

void set(nezha::ReductionOptions& options, const Reduction& reduction) {
  if (reduction.operation == nezha::ReduceOperation::kCustom) {
    options.setReduceFunction(reduction.function);
  } else {
    options.setOperation(reduction.operation);
  }
}

size_t elements(const at::Tensor& tensor, const Reduction& reduction) {
  return static_cast<size_t>(tensor.numel()) * reduction.factor;
}

Tensors contributions(const c10d::ReduceOp& op, const Tensors& tensors) {
  Tensors result;
  result.reserve(tensors.size());
  for (const at::Tensor& tensor : tensors) result.push_back(contribution(op, tensor));
  return result;
}

bool is_scaled(const c10d::ReduceOp& op) { return op.op_ == c10d::ReduceOp::PREMUL_SUM; }

}  // namespace

WorkPtr ProcessGroup::allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) {
  const Refuse refuse = refusal_of("allreduce");
  c10d::assertNonEmpty(refuse, tensors);
  c10d::assertLayoutMatch(refuse, tensors);
  if (tensors.front().layout() == at::kSparse) return allreduce_sparse_tensors(tensors, options);
  check_alike(refuse, tensors);
  const c10d::ReduceOp& op = options.reduceOp;
  if (tensors.size() > 1 && op.op_ == c10d::ReduceOp::AVG) {
    refuse("ReduceOp.AVG takes a single tensor");
  }
  const Reduction how = reduction("allreduce", op, tensors.front().scalar_type());
  auto work = make(c10d::OpType::ALLREDUCE, "nezha:all_reduce", tensors, {tensors});
  std::vector<const void*> inputs;
  std::vector<void*> outputs;
  for (at::Tensor& tensor : tensors) {
    const at::Tensor output =
        is_scaled(op) ? work->buffers.write(tensor) : work->buffers.update(tensor);
    const at::Tensor input = is_scaled(op) ? work->buffers.read(contribution(op, tensor)) : output;
    inputs.push_back(input.data_ptr());
    outputs.push_back(output.data_ptr());
  }
  const size_t count = elements(tensors.front(), how);
  nezha::AllreduceOptions allreduce(context());
  allreduce.setInputs(how.type, std::move(inputs), count);
  allreduce.setOutputs(how.type, std::move(outputs), count);
  set(allreduce, how);
  return begin(std::move(work), allreduce, options.timeout, nezha::allreduceAsync);
}

// The tensors are sent as one vector.
WorkPtr ProcessGroup::allreduce_coalesced(Tensors& tensors,
                                          const c10d::AllreduceCoalescedOptions& options) {
  const Refuse refuse = refusal_of("allreduce_coalesced");
  c10d::assertNonEmpty(refuse, tensors);
  c10d::assertLayoutMatch(refuse, tensors);
  for (const at::Tensor& tensor : tensors) {
    if (!tensor.options().type_equal(tensors.front().options())) {
      refuse("tensors must all have the same type");
    }
  }
  if (tensors.front().layout() != at::kStrided) refuse("unsupported layout");
  check_tensors(refuse, tensors);
  const c10d::ReduceOp& op = options.reduceOp;
  const Reduction how = reduction("allreduce_coalesced", op, tensors.front().scalar_type());
  auto work =
      make(c10d::OpType::ALLREDUCE_COALESCED, "nezha:all_reduce_coalesced", tensors, {tensors});
  const at::Tensor buffer = work->buffers.read(contributions(op, tensors));
  work->buffers.copy_parts_at_end(buffer, tensors);
  nezha::AllreduceOptions allreduce(context());
  allreduce.setInput(how.type, buffer.data_ptr(), elements(buffer, how));
  allreduce.setOutput(how.type, buffer.data_ptr(), elements(buffer, how));
  set(allreduce, how);
  return begin(std::move(work), allreduce, options.timeout, nezha::allreduceAsync);
}

WorkPtr ProcessGroup::reduce(Tensors& tensors, const c10d::ReduceOptions& options) {
  const Refuse refuse = refusal_of("reduce");
  c10d::assertRootRank(refuse, options.rootRank, size_);
  c10d::assertRootTensor(refuse, options.rootTensor, static_cast<int64_t>(tensors.size()));
  c10d::assertSingleElement(refuse, tensors);
  check_tensors(refuse, tensors);
  const c10d::ReduceOp& op = options.reduceOp;
  at::Tensor& tensor = tensors.front();
  const Reduction how = reduction("reduce", op, tensor.scalar_type());
  auto work = make(c10d::OpType::REDUCE, "nezha:reduce", tensors, {tensors});
  const at::Tensor input = work->buffers.read(contribution(op, tensor));
  nezha::ReduceOptions reduce(context());
  reduce.setRoot(static_cast<int>(options.rootRank));
  reduce.setInput(how.type, input.data_ptr(), elements(input, how));
  if (options.rootRank == rank_) {
    const at::Tensor output = work->buffers.write(tensor);
    reduce.setOutput(how.type, output.data_ptr(), elements(output, how));
  }
  set(reduce, how);
  return begin(std::move(work), reduce, options.timeout, nezha::reduceAsync);
}

WorkPtr ProcessGroup::reduce_scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                                     const c10d::ReduceScatterOptions& options) {
  const Refuse refuse = refusal_of("reduce_scatter");
  c10d::assertSingleElementOutput(refuse, outputs);
  check_tensors(refuse, outputs);
  check_list(refuse, "input", inputs, size_);
  const Tensors& blocks = inputs.front();
  check_tensors(refuse, blocks);
  at::Tensor& result = outputs.front();
  check_type(refuse, "output", result, blocks.front());
  if (result.numel() != blocks[static_cast<size_t>(rank_)].numel()) {
    refuse("the output has another size than the input of this rank's index");
  }
  const c10d::ReduceOp& op = options.reduceOp;
  const Reduction how = reduction("reduce_scatter", op, result.scalar_type());
  auto work = make(c10d::OpType::REDUCE_SCATTER, "nezha:reduce_scatter", blocks, {outputs});
  const at::Tensor input = work->buffers.read(contributions(op, blocks));
  const at::Tensor output = work->buffers.write(result);
  std::vector<size_t> counts;
  for (const at::Tensor& block : blocks) counts.push_back(elements(block, how));
  nezha::ReduceScatterOptions scatter(context());
  scatter.setInput(how.type, input.data_ptr(), std::move(counts));
  scatter.setOutput(how.type, output.data_ptr(), elements(output, how));
  set(scatter, how);
  return begin(std::move(work), scatter, options.timeout, nezha::reduceScatterAsync);
}

WorkPtr ProcessGroup::_reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                           const c10d::ReduceScatterOptions& options) {
  const Refuse refuse = refusal_of("_reduce_scatter_base");
  check_tensors(refuse, {input});
  check_tensors(refuse, {output});
  check_type(refuse, "output", output, input);
  check_blocks(refuse, "input", input, output, size_);
  const c10d::ReduceOp& op = options.reduceOp;
  const Reduction how = reduction("_reduce_scatter_base", op, input.scalar_type());
  auto work =
      make(c10d::OpType::_REDUCE_SCATTER_BASE, "nezha:_reduce_scatter_base", {input}, {{output}});
  const at::Tensor all = work->buffers.read(contribution(op, input));
  const at::Tensor block = work->buffers.write(output);
  nezha::ReduceScatterOptions scatter(context());
  scatter.setInput(how.type, all.data_ptr(), elements(all, how));
  scatter.setOutput(how.type, block.data_ptr(), elements(block, how));
  set(scatter, how);
  return begin(std::move(work), scatter, options.timeout, nezha::reduceScatterAsync);
}

#if NEZHA_TORCH_AT_LEAST(2, 1)
WorkPtr ProcessGroup::reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                      const c10d::ReduceScatterOptions& options) {
  if (outputs.size() != inputs.size()) {
    refusal_of("reduce_scatter_tensor_coalesced")("requires as many outputs as inputs");
  }
  std::vector<c10::intrusive_ptr<Work>> works;
  for (size_t i = 0; i < inputs.size(); ++i) {
    works.push_back(as_own(_reduce_scatter_base(outputs[i], inputs[i], options)));
  }
  return all_of("nezha:reduce_scatter_tensor_coalesced", std::move(works));
}
#endif

// ---- Sparse tensors ----------------------------------------------------------------------------

namespace {

// Returns the rows of all ranks, of which each has as many as `counts` says.
at::Tensor gather_rows(const std::shared_ptr<nezha::Context>& context, uint32_t tag,
                       milliseconds timeout, const at::Tensor& rows,
                       const std::vector<int64_t>& counts) {
  std::vector<int64_t> sizes = rows.sizes().vec();
  int64_t row = 1;
  for (size_t i = 1; i < sizes.size(); ++i) row *= sizes[i];
  sizes[0] = std::accumulate(counts.begin(), counts.end(), int64_t{0});
  at::Tensor all = at::empty(sizes, rows.options());
  const auto [type, factor] = moved(rows.scalar_type());
  std::vector<size_t> elements;
  for (const int64_t count : counts) elements.push_back(static_cast<size_t>(count * row) * factor);
  nezha::AllgatherOptions options(context);
  options.setTag(tag);
  options.setTimeout(timeout);
  options.setInput(type, rows.data_ptr(), static_cast<size_t>(rows.numel()) * factor);
  options.setOutput(type, all.data_ptr(), std::move(elements));
  nezha::allgather(options);
  return all;
}

// Returns the sum of all ranks' tensors. They must be coalesced and on the CPU.
at::Tensor sparse_sum(const std::shared_ptr<nezha::Context>& context, uint32_t tag,
                      milliseconds timeout, const at::Tensor& mine) {
  const at::Tensor values = mine.values().contiguous();
  const at::Tensor places = mine.indices().t().contiguous();
  const auto size = static_cast<size_t>(context->size());
  const at::Tensor own = at::full({1}, values.size(0), at::kLong);
  const at::Tensor all = gather_rows(context, tag, timeout, own, std::vector<int64_t>(size, 1));
  const auto* first = all.data_ptr<int64_t>();
  const std::vector<int64_t> counts(first, first + size);
  const at::Tensor all_values = gather_rows(context, tag, timeout, values, counts);
  const at::Tensor all_places = gather_rows(context, tag, timeout, places, counts);
  return at::sparse_coo_tensor(all_places.t(), all_values, mine.sizes()).coalesce();
}

}  // namespace

WorkPtr ProcessGroup::allreduce_sparse_tensors(Tensors& tensors,
                                               const c10d::AllreduceOptions& options) {
  const Refuse refuse = refusal_of("allreduce");
  c10d::assertTypeAndSizesMatch(refuse, tensors);
  if (options.reduceOp.op_ != c10d::ReduceOp::SUM) {
    refuse("sparse tensors have ReduceOp.SUM only: unsupported reduction operation");
  }
  reduction("allreduce", options.reduceOp, tensors.front().scalar_type());
  auto work = make(c10d::OpType::ALLREDUCE, "nezha:sparse_all_reduce", tensors, {tensors});
  at::Tensor mine = tensors.front();
  for (size_t i = 1; i < tensors.size(); ++i) mine = mine + tensors[i];
  mine = mine.cpu().coalesce();
  const uint32_t tag = 1 + composites_++ % (UINT32_MAX - 2);
  work->on_abort = [context = context()] { break_up(context); };
  work->begin([tensors, mine, tag, context = context(), timeout = deadline(options.timeout)] {
    const c10::NoGradGuard no_grad;
    const at::Tensor sum = sparse_sum(context, tag, timeout, mine);
    for (at::Tensor tensor : tensors) tensor.copy_(sum);
  });
  return work;
}

}  // namespace nezha_torch
