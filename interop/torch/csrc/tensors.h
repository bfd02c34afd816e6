// SPDX-License-Identifier: Apache-2.0
// Tensors as nezha takes them: elements that lie one after the other in the host's memory.
#pragma once

#include <ATen/ATen.h>
#include <c10/core/Stream.h>
#include <nezha/types.h>

#include <cstddef>
#include <optional>
#include <utility>
#include <vector>

namespace nezha_torch {

using Tensors = std::vector<at::Tensor>;

// What an operation reads and writes in place of the caller's tensors, and what is to be copied
// back at its end. A tensor that is contiguous and on the CPU is used itself. For one on another
// device memory is taken that is pinned, if the device has such.
class Buffers {
 public:
  // The tensor's elements. Reads them now: what the tensor's device is still to do to it by the
  // current stream is waited for.
  at::Tensor read(const at::Tensor& tensor);
  // The elements of the tensors, one tensor behind the other.
  at::Tensor read(const std::vector<at::Tensor>& tensors);
  // A place for the tensor's new elements. The present ones are not in it.
  at::Tensor write(at::Tensor tensor);
  at::Tensor write(const std::vector<at::Tensor>& tensors);
  // A place that has the tensor's present elements, and gets its new ones.
  at::Tensor update(at::Tensor tensor);
  at::Tensor update(const std::vector<at::Tensor>& tensors);
  // The tensor gets this buffer's contents at the end.
  void copy_at_end(const at::Tensor& from, at::Tensor to);
  // The tensors get their parts of it, one behind the other.
  void copy_parts_at_end(const at::Tensor& buffer, const std::vector<at::Tensor>& tensors);
  // Keeps memory until the end.
  void keep(at::Tensor tensor) { kept_.push_back(std::move(tensor)); }

  // Copies what is to be copied back, and returns when it is there. Any thread may call it, once.
  void finish();
  // Lets go of all tensors.
  void clear();

 private:
  struct Copy {
    at::Tensor from;
    at::Tensor to;
    std::optional<c10::Stream> stream;  // the one that was current at the begin, of its device
  };

  std::vector<at::Tensor> kept_;
  std::vector<Copy> copies_;
};

// The type by which nezha moves such elements, and how many of it these are: their own, if nezha
// has it, and bytes otherwise.
struct Moved {
  nezha::DataType type;
  size_t factor;  // per element
};
Moved moved(at::ScalarType type);

}  // namespace nezha_torch
