// SPDX-License-Identifier: Apache-2.0
#include "interop/torch/csrc/checks.h"

#include <c10/util/Exception.h>

#include <torch/csrc/distributed/c10d/Utils.hpp>

namespace nezha_torch {

Refuse refusal_of(const char* collective) {
  return [collective](const std::string& what) {
    C10_THROW_ERROR(Error, c10::str("ProcessGroupNezha::", collective, ": ", what));
  };
}

void check_tensors(const Refuse& refuse, const std::vector<at::Tensor>& tensors) {
  c10d::assertNonEmpty(refuse, tensors);
  for (size_t i = 0; i < tensors.size(); ++i) {
    const at::Tensor& tensor = tensors[i];
    if (tensor.layout() != at::kStrided) refuse("only supports dense tensors");
    if (!tensor.device().is_cpu() && !tensor.device().is_cuda()) {
      refuse("unsupported device type " + tensor.device().str());
    }
    c10d::assertTypeMatch(refuse, tensors.front().options(), tensors, i);
  }
}

void check_alike(const Refuse& refuse, const std::vector<at::Tensor>& tensors) {
  check_tensors(refuse, tensors);
  for (size_t i = 1; i < tensors.size(); ++i) {
    c10d::assertSizesMatch(refuse, tensors.front().sizes(), tensors, i);
  }
}

void check_list(const Refuse& refuse, const char* what,
                const std::vector<std::vector<at::Tensor>>& lists, int size) {
  if (lists.size() != 1) {
    refuse(std::string("requires a single-element ") + what + " list containing a list with " +
           std::to_string(size) + " tensors.");
  }
  if (lists.front().size() == static_cast<size_t>(size)) return;
  refuse(std::string("Incorrect ") + what + " list size " + std::to_string(lists.front().size()) +
         ". " + static_cast<char>(std::toupper(what[0])) + (what + 1) + " list size should be " +
         std::to_string(size) + ", same as size of the process group.");
}

void check_like(const Refuse& refuse, const char* what, const std::vector<at::Tensor>& tensors,
                const at::Tensor& like) {
  check_tensors(refuse, tensors);
  for (size_t i = 0; i < tensors.size(); ++i) {
    c10d::assertTypeMatch(refuse, like.options(), tensors, i);
    if (tensors[i].sizes() == like.sizes()) continue;
    refuse(std::string("invalid tensor size at index ") + std::to_string(i) + " of the " + what +
           " list (expected " + c10d::toString(like.sizes()) + ", got " +
           c10d::toString(tensors[i].sizes()) + ")");
  }
}

void check_type(const Refuse& refuse, const char* what, const at::Tensor& tensor,
                const at::Tensor& like) {
  if (tensor.scalar_type() == like.scalar_type()) return;
  refuse(std::string("the ") + what + " is of type " + c10::toString(tensor.scalar_type()) +
         ", and the input of type " + c10::toString(like.scalar_type()));
}

void check_blocks(const Refuse& refuse, const char* what, const at::Tensor& all,
                  const at::Tensor& block, int size) {
  if (all.numel() == block.numel() * size) return;
  refuse(std::string("the ") + what + " has " + std::to_string(all.numel()) +
         " elements, and should have " + std::to_string(block.numel()) + " for each of the " +
         std::to_string(size) + " ranks");
}

}  // namespace nezha_torch
