// SPDX-License-Identifier: Apache-2.0
// Checks of a collective's arguments.
#pragma once

#include <ATen/ATen.h>

#include <functional>
#include <string>
#include <vector>

namespace nezha_torch {

// A function that throws c10::Error, a RuntimeError in Python, with a text that says what is wrong.
using Refuse = std::function<void(const std::string&)>;
Refuse refusal_of(const char* collective);

// Each of the following refuses arguments unless its condition holds.

// There are tensors, and all are dense, on a CPU or GPU, and of one type.
void check_tensors(const Refuse& refuse, const std::vector<at::Tensor>& tensors);
// The condition of check_tensors holds, and all have one size.
void check_alike(const Refuse& refuse, const std::vector<at::Tensor>& tensors);
// There is one list, of as many tensors as there are ranks.
void check_list(const Refuse& refuse, const char* what,
                const std::vector<std::vector<at::Tensor>>& lists, int size);
// All tensors have the type and size of `like`.
void check_like(const Refuse& refuse, const char* what, const std::vector<at::Tensor>& tensors,
                const at::Tensor& like);
void check_type(const Refuse& refuse, const char* what, const at::Tensor& tensor,
                const at::Tensor& like);
// `all` has as many elements for each rank as `block` has.
void check_blocks(const Refuse& refuse, const char* what, const at::Tensor& all,
                  const at::Tensor& block, int size);

}  // namespace nezha_torch
