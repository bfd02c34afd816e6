// SPDX-License-Identifier: Apache-2.0
// PyTorch's reductions in nezha's words.
#pragma once

#include <ATen/ATen.h>
#include <nezha/types.h>

#include <cstddef>
#include <torch/csrc/distributed/c10d/Types.hpp>

namespace nezha_torch {

struct Reduction {
  nezha::DataType type;
  size_t factor;                     // elements of `type` in one of the tensor's
  nezha::ReduceOperation operation;  // kCustom: `function`
  nezha::ReduceFunction function;
};

// How tensors of this type are reduced. Complex numbers are two reals each. Booleans are bytes of 0
// or 1, whose sum is "or". Throws c10::Error, whose text begins with `caller`, if
// PyTorch's operation has no meaning for the type.
Reduction reduction(const char* caller, const c10d::ReduceOp& op, at::ScalarType type);

// What this rank contributes of the tensor: for PREMUL_SUM its product with the operation's factor,
// and for all others the tensor itself.
at::Tensor contribution(const c10d::ReduceOp& op, const at::Tensor& tensor);

}  // namespace nezha_torch
