// SPDX-License-Identifier: Apache-2.0
// Translates PyTorch's reductions to nezha's.
#pragma once

#include <ATen/ATen.h>
#include <nezha/types.h>

#include <cstddef>
#include <torch/csrc/distributed/c10d/Types.hpp>

namespace nezha_torch {

struct Reduction {
  nezha::DataType type;
  size_t factor;                     // elements of `type` for each element of the tensor
  nezha::ReduceOperation operation;  // kCustom: `function` is used
  nezha::ReduceFunction function;
};

// Returns how tensors of this type are reduced. A complex number counts as two reals. Booleans are
// bytes of 0 or 1, whose sum is "or". Throws c10::Error, whose text begins with `caller`, if
// PyTorch's operation is not defined for the type.
Reduction reduction(const char* caller, const c10d::ReduceOp& op, at::ScalarType type);

// Returns this rank's contribution: for PREMUL_SUM the product of the tensor and the operation's
// factor, for all other operations the tensor itself.
at::Tensor contribution(const c10d::ReduceOp& op, const at::Tensor& tensor);

}  // namespace nezha_torch
