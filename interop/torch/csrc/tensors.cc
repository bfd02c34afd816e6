// SPDX-License-Identifier: Apache-2.0
#include "interop/torch/csrc/tensors.h"

#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <numeric>

#include "interop/torch/csrc/unrecorded.h"
#include "interop/torch/csrc/version.h"

namespace nezha_torch {
namespace {

bool is_plain(const at::Tensor& tensor) {
  return tensor.device().is_cpu() && tensor.is_contiguous() && !tensor.is_conj() &&
         !tensor.is_neg();
}

at::Tensor room(const at::Tensor& like, int64_t elements) {
  const bool is_pinned = like.device().is_cuda();
  return at::empty({elements},
                   like.options().device(at::kCPU).requires_grad(false).pinned_memory(is_pinned));
}

int64_t count(const std::vector<at::Tensor>& tensors) {
  return std::accumulate(tensors.begin(), tensors.end(), int64_t{0},
                         [](int64_t sum, const at::Tensor& t) { return sum + t.numel(); });
}

// Returns the parts of a buffer that belong to the tensors, each in its tensor's shape.
std::vector<at::Tensor> parts(const at::Tensor& buffer, const std::vector<at::Tensor>& tensors) {
  std::vector<at::Tensor> parts;
  parts.reserve(tensors.size());
  int64_t begin = 0;
  for (const at::Tensor& tensor : tensors) {
    parts.push_back(buffer.narrow(0, begin, tensor.numel()).view(tensor.sizes()));
    begin += tensor.numel();
  }
  return parts;
}

std::optional<c10::Stream> current_stream(const at::Tensor& tensor) {
  const c10::Device device = tensor.device();
  if (device.is_cpu()) return std::nullopt;
  return c10::impl::VirtualGuardImpl(device.type()).getStream(device);
}

}  // namespace

at::Tensor Buffers::read(const at::Tensor& tensor) {
  if (is_plain(tensor)) {
    keep(tensor);
    return tensor;
  }
  return read(std::vector<at::Tensor>{tensor});
}

at::Tensor Buffers::read(const std::vector<at::Tensor>& tensors) {
  const Unrecorded unrecorded;
  at::Tensor buffer = room(tensors.front(), count(tensors));
  std::vector<at::Tensor> places = parts(buffer, tensors);
  for (size_t i = 0; i < tensors.size(); ++i) places[i].copy_(tensors[i]);
  keep(buffer);
  return buffer;
}

at::Tensor Buffers::write(at::Tensor tensor) {
  if (is_plain(tensor)) {
    keep(tensor);
    return tensor;
  }
  return write(std::vector<at::Tensor>{std::move(tensor)});
}

at::Tensor Buffers::write(const std::vector<at::Tensor>& tensors) {
  const Unrecorded unrecorded;
  at::Tensor buffer = room(tensors.front(), count(tensors));
  copy_parts_at_end(buffer, tensors);
  keep(buffer);
  return buffer;
}

at::Tensor Buffers::update(at::Tensor tensor) {
  if (is_plain(tensor)) {
    keep(tensor);
    return tensor;
  }
  return update(std::vector<at::Tensor>{std::move(tensor)});
}

at::Tensor Buffers::update(const std::vector<at::Tensor>& tensors) {
  at::Tensor buffer = read(tensors);
  copy_parts_at_end(buffer, tensors);
  return buffer;
}

void Buffers::copy_at_end(const at::Tensor& from, at::Tensor to) {
  const auto stream = current_stream(to);
  copies_.push_back({from, std::move(to), stream});
}

void Buffers::copy_parts_at_end(const at::Tensor& buffer, const std::vector<at::Tensor>& tensors) {
  const Unrecorded unrecorded;
  const std::vector<at::Tensor> places = parts(buffer, tensors);
  for (size_t i = 0; i < tensors.size(); ++i) copy_at_end(places[i], tensors[i]);
}

void Buffers::finish() {
  const Unrecorded unrecorded;
  for (Copy& copy : copies_) {
    // Uses the stream that was the caller's, so that the copy comes after what the caller has done
    // to the tensor before. The copy is not asynchronous, so all later work sees its result.
    std::optional<c10::StreamGuard> guard;
    if (copy.stream) guard.emplace(*copy.stream);
    copy.to.copy_(copy.from);
  }
}

void Buffers::clear() {
  kept_.clear();
  copies_.clear();
}

Moved moved(at::ScalarType type) {
  switch (type) {
    case at::kFloat:
      return {nezha::DataType::kFloat32, 1};
    case at::kDouble:
      return {nezha::DataType::kFloat64, 1};
    case at::kHalf:
      return {nezha::DataType::kFloat16, 1};
    case at::kBFloat16:
      return {nezha::DataType::kBFloat16, 1};
    case at::kComplexFloat:
      return {nezha::DataType::kFloat32, 2};
    case at::kComplexDouble:
      return {nezha::DataType::kFloat64, 2};
    case at::kChar:
      return {nezha::DataType::kInt8, 1};
    case at::kShort:
      return {nezha::DataType::kInt16, 1};
    case at::kInt:
      return {nezha::DataType::kInt32, 1};
    case at::kLong:
      return {nezha::DataType::kInt64, 1};
#if NEZHA_TORCH_AT_LEAST(2, 3)
    case at::kUInt16:
      return {nezha::DataType::kUint16, 1};
    case at::kUInt32:
      return {nezha::DataType::kUint32, 1};
    case at::kUInt64:
      return {nezha::DataType::kUint64, 1};
#endif
    default:
      return {nezha::DataType::kUint8, c10::elementSize(type)};
  }
}

}  // namespace nezha_torch
