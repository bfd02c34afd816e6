// SPDX-License-Identifier: Apache-2.0
#include <nezha/allreduce.h>
#include <nezha/reduce.h>
#include <nezha/reduce_scatter.h>

#include "bindings/call.h"
#include "bindings/collectives.h"

namespace nezha::python {
namespace {

// The arguments that every reduction has.
struct Reduction {
  py::handle operation;
  py::handle dtype;
  bool reproducible;
};

void take_for_numbers(py::handle dtype, Buffers& buffers) {
  for (Buffer& buffer : buffers) {
    if (buffer) buffer.take_for_numbers(dtype);
  }
  check_same_type(buffers);
}

template <typename Options>
void set_reduction(const Call& call, const Reduction& reduction, Options& options) {
  options.setOperation(reduce_operation(reduction.operation, call.what("operation")));
  options.setReproducible(reduction.reproducible);
}

py::object allreduce(const GroupPointer& group, py::handle array, py::handle out,
                     py::handle operation, py::handle dtype, bool reproducible, py::handle tag,
                     py::handle timeout, py::handle algorithm, bool waits) {
  constexpr Call kCall{"allreduce"};
  const bool is_in_place = out.is_none();
  Buffers buffers;
  if (!is_in_place) buffers[0] = kCall.input(array, "array");
  buffers[1] = is_in_place ? kCall.output(array, "array") : kCall.output(out, "out");
  take_for_numbers(dtype, buffers);
  AllreduceOptions options(group->open());
  set_common(kCall, {tag, timeout, algorithm, waits}, options);
  set_reduction(kCall, {operation, dtype, reproducible}, options);
  const auto& [input, output] = buffers;
  if (input) options.setInput(input.type(), input.data(), input.elements());
  options.setOutput(output.type(), output.data(), output.elements());
  return launch(group, std::move(options), std::move(buffers), waits, allreduceAsync);
}

py::object reduce(const GroupPointer& group, py::handle array, py::handle out, py::handle root,
                  py::handle operation, py::handle dtype, bool reproducible, py::handle tag,
                  py::handle timeout, py::handle algorithm, bool waits) {
  constexpr Call kCall{"reduce"};
  const int to = rank_of(root, kCall.what("root"), group->size());
  const bool is_root = to == group->rank();
  Buffers buffers;
  if (is_root && out.is_none()) {
    buffers[1] = kCall.output(array, "array");
  } else {
    buffers[0] = kCall.input(array, "array");
    if (is_root) buffers[1] = kCall.output(out, "out");
  }
  take_for_numbers(dtype, buffers);
  ReduceOptions options(group->open());
  options.setRoot(to);
  set_common(kCall, {tag, timeout, algorithm, waits}, options);
  set_reduction(kCall, {operation, dtype, reproducible}, options);
  const auto& [input, output] = buffers;
  if (input) options.setInput(input.type(), input.data(), input.elements());
  if (output) options.setOutput(output.type(), output.data(), output.elements());
  return launch(group, std::move(options), std::move(buffers), waits, reduceAsync);
}

py::object reduce_scatter(const GroupPointer& group, py::handle array, py::handle out,
                          py::handle block_counts, py::handle operation, py::handle dtype,
                          bool reproducible, py::handle tag, py::handle timeout,
                          py::handle algorithm, bool waits) {
  constexpr Call kCall{"reduce_scatter"};
  Buffers buffers{kCall.input(array, "array"), kCall.output(out, "out")};
  take_for_numbers(dtype, buffers);
  ReduceScatterOptions options(group->open());
  set_common(kCall, {tag, timeout, algorithm, waits}, options);
  set_reduction(kCall, {operation, dtype, reproducible}, options);
  set_input(buffers[0], counts(block_counts, kCall.what("counts"), group->size()), options);
  set_output(buffers[1], std::nullopt, options);
  return launch(group, std::move(options), std::move(buffers), waits, reduceScatterAsync);
}

}  // namespace

void add_reductions(py::class_<Group, std::shared_ptr<Group>>& group) {
  group.def("allreduce", allreduce).def("reduce", reduce).def("reduce_scatter", reduce_scatter);
}

}  // namespace nezha::python
