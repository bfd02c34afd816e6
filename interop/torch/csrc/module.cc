// SPDX-License-Identifier: Apache-2.0
// The Python module nezha_torch._C.
#include <nezha/version.h>
#include <pybind11/chrono.h>
#include <torch/extension.h>

#include <chrono>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "interop/torch/csrc/gloo_device.h"
#include "interop/torch/csrc/process_group.h"
#include "interop/torch/csrc/workers.h"

namespace nezha_torch {
namespace {

c10::intrusive_ptr<Backend> create(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
                                   std::chrono::milliseconds timeout) {
  return c10::make_intrusive<ProcessGroup>(store, rank, size, timeout);
}

void monitored_barrier(const c10::intrusive_ptr<Backend>& group, std::chrono::milliseconds timeout,
                       bool wait_all_ranks) {
  c10d::BarrierOptions options;
  options.timeout = timeout;
  group->monitoredBarrier(options, wait_all_ranks);
}

}  // namespace

PYBIND11_MODULE(TORCH_EXTENSION_NAME, module) {
  using Released = pybind11::call_guard<pybind11::gil_scoped_release>;
  module.def("create", create, Released());
  module.def("monitored_barrier", monitored_barrier, Released());
  module.def("has_gloo_device", has_gloo_device);
  module.def(
      "stop", [] { Workers::get().stop(); }, Released());
}

}  // namespace nezha_torch
