// SPDX-License-Identifier: Apache-2.0
// The process group's collectives that move elements as they are.
#include <nezha/allgather.h>
#include <nezha/alltoall.h>
#include <nezha/broadcast.h>
#include <nezha/gather.h>
#include <nezha/scatter.h>

#include <torch/csrc/distributed/c10d/Utils.hpp>
#include <utility>

#include "interop/torch/csrc/checks.h"
#include "interop/torch/csrc/launch.h"

namespace nezha_torch {
namespace {

// A contiguous tensor's memory, described by nezha's types.
struct Vector {
  explicit Vector(const at::Tensor& tensor)
      : type(moved(tensor.scalar_type()).type),
        data(tensor.data_ptr()),
        elements(static_cast<size_t>(tensor.numel()) * moved(tensor.scalar_type()).factor) {}

  nezha::DataType type;
  void* data;
  size_t elements;
};

Tensors flat(const std::vector<Tensors>& lists) {
  Tensors all;
  for (const Tensors& list : lists) all.insert(all.end(), list.begin(), list.end());
  return all;
}

}  // namespace

WorkPtr ProcessGroup::broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) {
  const Refuse refuse = refusal_of("broadcast");
  c10d::assertRootRank(refuse, options.rootRank, size_);
  c10d::assertRootTensor(refuse, options.rootTensor, static_cast<int64_t>(tensors.size()));
  check_alike(refuse, tensors);
  auto work = make(c10d::OpType::BROADCAST, "nezha:broadcast", tensors, {tensors});
  nezha::BroadcastOptions broadcast(context());
  broadcast.setRoot(static_cast<int>(options.rootRank));
  const auto chosen = static_cast<size_t>(options.rootTensor);
  const bool is_root = options.rootRank == rank_;
  const at::Tensor buffer =
      is_root ? work->buffers.read(tensors[chosen]) : work->buffers.write(tensors[chosen]);
  const Vector vector(buffer);
  if (is_root) {
    broadcast.setInput(vector.type, vector.data, vector.elements);
  } else {
    broadcast.setOutput(vector.type, vector.data, vector.elements);
  }
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (i != chosen) work->buffers.copy_at_end(buffer.view(tensors[i].sizes()), tensors[i]);
  }
  return begin(std::move(work), broadcast, options.timeout, nezha::broadcastAsync);
}

// ---- allgather ---------------------------------------------------------------------------------

WorkPtr ProcessGroup::begin_allgather(c10::intrusive_ptr<Work> work, const at::Tensor& input,
                                      const at::Tensor& output,
                                      const c10d::AllgatherOptions& options) {
  const Vector block(input);
  const Vector all(output);
  nezha::AllgatherOptions allgather(context());
  allgather.setInput(block.type, block.data, block.elements);
  allgather.setOutput(all.type, all.data, all.elements);
  return begin(std::move(work), allgather, options.timeout, nezha::allgatherAsync);
}

// If there are several inputs, a rank's block consists of all of them.
WorkPtr ProcessGroup::allgather(std::vector<Tensors>& outputs, Tensors& inputs,
                                const c10d::AllgatherOptions& options) {
  const Refuse refuse = refusal_of("allgather");
  if (inputs.empty()) refuse("requires non-empty input tensor list");
  if (inputs.size() != outputs.size()) {
    refuse("requires input/output tensor lists to have the same length");
  }
  check_alike(refuse, inputs);
  const size_t expected = inputs.size() * static_cast<size_t>(size_);
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (outputs[i].size() != expected) {
      refuse("invalid output tensor list at index " + std::to_string(i) + " (expected length " +
             std::to_string(expected) + ", got " + std::to_string(outputs[i].size()) + ")");
    }
    check_like(refuse, "output", outputs[i], inputs.front());
  }
  auto work = make(c10d::OpType::ALLGATHER, "nezha:all_gather", inputs, outputs);
  const at::Tensor input =
      inputs.size() == 1 ? work->buffers.read(inputs.front()) : work->buffers.read(inputs);
  const at::Tensor output = work->buffers.write(outputs.front());
  for (size_t i = 1; i < outputs.size(); ++i) {
    work->buffers.copy_parts_at_end(output, outputs[i]);
  }
  return begin_allgather(std::move(work), input, output, options);
}

WorkPtr ProcessGroup::_allgather_base(at::Tensor& output, at::Tensor& input,
                                      const c10d::AllgatherOptions& options) {
  const Refuse refuse = refusal_of("_allgather_base");
  check_tensors(refuse, {input});
  check_tensors(refuse, {output});
  check_type(refuse, "output", output, input);
  check_blocks(refuse, "output", output, input, size_);
  auto work = make(c10d::OpType::_ALLGATHER_BASE, "nezha:_all_gather_base", {input}, {{output}});
  const at::Tensor block = work->buffers.read(input);
  const at::Tensor all = work->buffers.write(output);
  return begin_allgather(std::move(work), block, all, options);
}

// `outputs` has a list for each rank, with tensors of the inputs' sizes and types.
WorkPtr ProcessGroup::allgather_coalesced(std::vector<Tensors>& outputs, Tensors& inputs,
                                          const c10d::AllgatherOptions& options) {
  const Refuse refuse = refusal_of("allgather_coalesced");
  if (inputs.empty()) refuse("requires non-empty input tensor list");
  check_tensors(refuse, inputs);
  if (outputs.size() != static_cast<size_t>(size_)) {
    refuse("output lists should be equal to world size");
  }
  for (size_t r = 0; r < outputs.size(); ++r) {
    const Tensors& list = outputs[r];
    const std::string which = " of the output list of rank " + std::to_string(r);
    if (list.size() != inputs.size()) refuse("invalid length" + which);
    for (size_t i = 0; i < list.size(); ++i) {
      if (list[i].sizes() != inputs[i].sizes()) {
        refuse("invalid size of output tensor at index " + std::to_string(i) + which);
      }
      c10d::assertTypeMatch(refuse, inputs[i].options(), list, i);
    }
  }
  const Tensors all = flat(outputs);
  auto work =
      make(c10d::OpType::ALLGATHER_COALESCED, "nezha:all_gather_coalesced", inputs, outputs);
  const at::Tensor input = work->buffers.read(inputs);
  const at::Tensor output = work->buffers.write(all);
  return begin_allgather(std::move(work), input, output, options);
}

#if NEZHA_TORCH_AT_LEAST(2, 1)
WorkPtr ProcessGroup::allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                      const c10d::AllgatherOptions& options) {
  if (outputs.size() != inputs.size()) {
    refusal_of("allgather_into_tensor_coalesced")("requires as many outputs as inputs");
  }
  std::vector<c10::intrusive_ptr<Work>> works;
  for (size_t i = 0; i < inputs.size(); ++i) {
    works.push_back(as_own(_allgather_base(outputs[i], inputs[i], options)));
  }
  return all_of("nezha:all_gather_into_tensor_coalesced", std::move(works));
}
#endif

// ---- gather and scatter ------------------------------------------------------------------------

WorkPtr ProcessGroup::gather(std::vector<Tensors>& outputs, Tensors& inputs,
                             const c10d::GatherOptions& options) {
  const Refuse refuse = refusal_of("gather");
  c10d::assertRootRank(refuse, options.rootRank, size_);
  c10d::assertSingleElementInput(refuse, inputs);
  check_tensors(refuse, inputs);
  const bool is_root = options.rootRank == rank_;
  if (is_root) {
    check_list(refuse, "output", outputs, size_);
    check_like(refuse, "output", outputs.front(), inputs.front());
  } else if (!outputs.empty()) {
    refuse("requires empty output on non-root");
  }
  auto work = make(c10d::OpType::GATHER, "nezha:gather", inputs, outputs);
  const Vector block(work->buffers.read(inputs.front()));
  nezha::GatherOptions gather(context());
  gather.setRoot(static_cast<int>(options.rootRank));
  gather.setInput(block.type, block.data, block.elements);
  if (is_root) {
    const Vector all(work->buffers.write(outputs.front()));
    gather.setOutput(all.type, all.data, all.elements);
  }
  return begin(std::move(work), gather, options.timeout, nezha::gatherAsync);
}

WorkPtr ProcessGroup::scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                              const c10d::ScatterOptions& options) {
  const Refuse refuse = refusal_of("scatter");
  c10d::assertRootRank(refuse, options.rootRank, size_);
  c10d::assertSingleElementOutput(refuse, outputs);
  check_tensors(refuse, outputs);
  const bool is_root = options.rootRank == rank_;
  if (is_root) {
    check_list(refuse, "input", inputs, size_);
    check_like(refuse, "input", inputs.front(), outputs.front());
  } else if (!inputs.empty()) {
    refuse("requires empty input on non-root");
  }
  auto work = make(c10d::OpType::SCATTER, "nezha:scatter", flat(inputs), {outputs});
  const Vector block(work->buffers.write(outputs.front()));
  nezha::ScatterOptions scatter(context());
  scatter.setRoot(static_cast<int>(options.rootRank));
  scatter.setOutput(block.type, block.data, block.elements);
  if (is_root) {
    const Vector all(work->buffers.read(inputs.front()));
    scatter.setInput(all.type, all.data, all.elements);
  }
  return begin(std::move(work), scatter, options.timeout, nezha::scatterAsync);
}

// ---- alltoall ----------------------------------------------------------------------------------

namespace {

// Returns the number of nezha's elements for each rank.
std::vector<size_t> counts_of(const at::Tensor& tensor, std::vector<int64_t>& splits, int size) {
  c10d::checkSplitSizes(splits, tensor, size);
  const auto all = static_cast<size_t>(tensor.numel()) * moved(tensor.scalar_type()).factor;
  const auto ranks = static_cast<size_t>(size);
  if (splits.empty()) return std::vector<size_t>(ranks, all / ranks);
  const auto rows = static_cast<size_t>(tensor.size(0));
  std::vector<size_t> counts;
  for (const int64_t split : splits) {
    counts.push_back(rows == 0 ? 0 : static_cast<size_t>(split) * (all / rows));
  }
  return counts;
}

std::vector<size_t> counts_of(const Tensors& tensors) {
  std::vector<size_t> counts;
  for (const at::Tensor& tensor : tensors) counts.push_back(Vector(tensor).elements);
  return counts;
}

}  // namespace

// Always uses alltoallv, since one rank may give splits while another leaves them out.
WorkPtr ProcessGroup::begin_alltoall(c10::intrusive_ptr<Work> work, const at::Tensor& input,
                                     std::vector<size_t> input_counts, const at::Tensor& output,
                                     std::vector<size_t> output_counts,
                                     const c10d::AllToAllOptions& options) {
  const Vector from(input);
  const Vector to(output);
  nezha::AlltoallvOptions alltoall(context());
  alltoall.setInput(from.type, from.data, std::move(input_counts));
  alltoall.setOutput(to.type, to.data, std::move(output_counts));
  return begin(std::move(work), alltoall, options.timeout, nezha::alltoallvAsync);
}

WorkPtr ProcessGroup::alltoall_base(at::Tensor& output, at::Tensor& input,
                                    std::vector<int64_t>& output_splits,
                                    std::vector<int64_t>& input_splits,
                                    const c10d::AllToAllOptions& options) {
  const Refuse refuse = refusal_of("alltoall_base");
  check_tensors(refuse, {input});
  check_tensors(refuse, {output});
  check_type(refuse, "output", output, input);
  auto input_counts = counts_of(input, input_splits, size_);
  auto output_counts = counts_of(output, output_splits, size_);
  auto work = make(c10d::OpType::ALLTOALL_BASE, "nezha:all_to_all", {input}, {{output}});
  const at::Tensor from = work->buffers.read(input);
  const at::Tensor to = work->buffers.write(output);
  return begin_alltoall(std::move(work), from, std::move(input_counts), to,
                        std::move(output_counts), options);
}

WorkPtr ProcessGroup::alltoall(Tensors& outputs, Tensors& inputs,
                               const c10d::AllToAllOptions& options) {
  const Refuse refuse = refusal_of("alltoall");
  const auto size = static_cast<size_t>(size_);
  if (inputs.size() != size || outputs.size() != size) {
    refuse("requires a tensor for each rank in both lists");
  }
  check_tensors(refuse, inputs);
  check_tensors(refuse, outputs);
  check_type(refuse, "output", outputs.front(), inputs.front());
  auto work = make(c10d::OpType::ALLTOALL, "nezha:all_to_all", inputs, {outputs});
  const at::Tensor from = work->buffers.read(inputs);
  const at::Tensor to = work->buffers.write(outputs);
  return begin_alltoall(std::move(work), from, counts_of(inputs), to, counts_of(outputs), options);
}

}  // namespace nezha_torch
