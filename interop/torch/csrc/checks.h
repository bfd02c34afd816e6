// SPDX-License-Identifier: Apache-2.0
// What the arguments of a collective must be.
#pragma once

#include <ATen/ATen.h>

#include <functional>
#include <string>
#include <vector>

namespace nezha_torch {

// Throws c10::Error, which is a RuntimeError in Python, with what is wrong in that collective.
using Refuse = std::function<void(const std::string&)>;
Refuse refusal_of(const char* collective);

// The tensors are there, dense, on a CPU or GPU, and of one type.
void check_tensors(const Refuse& refuse, const std::vector<at::Tensor>& tensors);
// And of one size.
void check_alike(const Refuse& refuse, const std::vector<at::Tensor>& tensors);
// There is one list, of as many tensors as there are ranks.
void check_list(const Refuse& refuse, const char* what,
                const std::vector<std::vector<at::Tensor>>& lists, int size);
// All are of this one's type and size.
void check_like(const Refuse& refuse, const char* what, const std::vector<at::Tensor>& tensors,
                const at::Tensor& like);
void check_type(const Refuse& refuse, const char* what, const at::Tensor& tensor,
                const at::Tensor& like);
// The tensor has a block for each rank, of as many elements as this one.
void check_blocks(const Refuse& refuse, const char* what, const at::Tensor& all,
                  const at::Tensor& block, int size);

}  // namespace nezha_torch
