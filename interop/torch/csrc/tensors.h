// SPDX-License-Identifier: Apache-2.0
// Converts tensors to the form that nezha takes: contiguous elements in the host's memory.
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

// The buffers that an operation reads and writes in place of the caller's tensors, and the copies
// that are due at its end. A tensor that is contiguous and on the CPU is its own buffer. The buffer
// of a tensor on a GPU is in pinned memory.
class Buffers {
 public:
  // Returns a buffer with the tensor's elements. Waits for what the current stream of the tensor's
  // device still has to do to the tensor.
  at::Tensor read(const at::Tensor& tensor);
  // Returns a buffer with the elements of all tensors, one tensor behind the other.
  at::Tensor read(const std::vector<at::Tensor>& tensors);
  // Returns a buffer for the tensor's new elements. It need not have the present ones.
  at::Tensor write(at::Tensor tensor);
  at::Tensor write(const std::vector<at::Tensor>& tensors);
  // Returns a buffer that has the tensor's present elements, and is for its new ones.
  at::Tensor update(at::Tensor tensor);
  at::Tensor update(const std::vector<at::Tensor>& tensors);
  // Has finish() copy a buffer to the tensor.
  void copy_at_end(const at::Tensor& from, at::Tensor to);
  // Has finish() copy the parts of the buffer, one behind the other, to the tensors.
  void copy_parts_at_end(const at::Tensor& buffer, const std::vector<at::Tensor>& tensors);
  // Keeps memory until the end.
  void keep(at::Tensor tensor) { kept_.push_back(std::move(tensor)); }

  // Makes the copies that are due, and returns when they are complete. Any thread may call it,
  // once.
  void finish();
  // Releases all tensors.
  void clear();

 private:
  struct Copy {
    at::Tensor from;
    at::Tensor to;
    std::optional<c10::Stream> stream;  // current on `to`'s device when the copy was added
  };

  std::vector<at::Tensor> kept_;
  std::vector<Copy> copies_;
};

// The type by which nezha moves elements, and how many of that type make up one element. It is the
// elements' own type if nezha has it, and bytes otherwise.
struct Moved {
  nezha::DataType type;
  size_t factor;  // the number for each element
};
Moved moved(at::ScalarType type);

}  // namespace nezha_torch
