// SPDX-License-Identifier: Apache-2.0
#include <nezha/allgather.h>
#include <nezha/alltoall.h>
#include <nezha/barrier.h>
#include <nezha/broadcast.h>
#include <nezha/gather.h>
#include <nezha/scatter.h>

#include "bindings/call.h"
#include "bindings/collectives.h"

namespace nezha::python {
namespace {

py::object barrier(const GroupPointer& group, py::handle tag, py::handle timeout, bool waits) {
  constexpr Call kCall{"barrier"};
  BarrierOptions options(group->open());
  set_tag(kCall, {tag, timeout, py::none(), waits}, kLargestTag, options);
  return launch(group, std::move(options), {}, waits, barrierAsync);
}

py::object broadcast(const GroupPointer& group, py::handle array, py::handle root, py::handle tag,
                     py::handle timeout, py::handle algorithm, bool waits) {
  constexpr Call kCall{"broadcast"};
  const int from = rank_of(root, kCall.what("root"), group->size());
  const bool is_root = from == group->rank();
  Buffers buffers{is_root ? kCall.input(array, "array") : kCall.output(array, "array"), Buffer()};
  const Buffer& buffer = buffers[0];
  if (!buffer) throw py::type_error(kCall.what("array") + " is None");
  BroadcastOptions options(group->open());
  options.setRoot(from);
  set_common(kCall, {tag, timeout, algorithm, waits}, options);
  if (is_root) {
    options.setInput(buffer.type(), buffer.data(), buffer.elements());
  } else {
    options.setOutput(buffer.type(), buffer.data(), buffer.elements());
  }
  return launch(group, std::move(options), std::move(buffers), waits, broadcastAsync);
}

py::object allgather(const GroupPointer& group, py::handle block, py::handle out,
                     py::handle block_counts, py::handle tag, py::handle timeout,
                     py::handle algorithm, bool waits) {
  constexpr Call kCall{"allgather"};
  Buffers buffers{kCall.input(block, "block"), kCall.output(out, "out")};
  check_same_type(buffers);
  AllgatherOptions options(group->open());
  set_common(kCall, {tag, timeout, algorithm, waits}, options);
  set_input(buffers[0], std::nullopt, options);
  set_output(buffers[1], counts(block_counts, kCall.what("counts"), group->size()), options);
  return launch(group, std::move(options), std::move(buffers), waits, allgatherAsync);
}

py::object alltoall(const GroupPointer& group, py::handle array, py::handle out, py::handle tag,
                    py::handle timeout, py::handle algorithm, bool waits) {
  constexpr Call kCall{"alltoall"};
  const bool is_in_place = out.is_none();
  Buffers buffers;
  if (!is_in_place) buffers[0] = kCall.input(array, "array");
  buffers[1] = is_in_place ? kCall.output(array, "array") : kCall.output(out, "out");
  check_same_type(buffers);
  AlltoallOptions options(group->open());
  set_common(kCall, {tag, timeout, algorithm, waits}, options);
  set_input(buffers[0], std::nullopt, options);
  set_output(buffers[1], std::nullopt, options);
  return launch(group, std::move(options), std::move(buffers), waits, alltoallAsync);
}

py::object alltoallv(const GroupPointer& group, py::handle array, py::handle out,
                     py::handle in_counts, py::handle out_counts, py::handle tag,
                     py::handle timeout, py::handle algorithm, bool waits) {
  constexpr Call kCall{"alltoallv"};
  Buffers buffers{kCall.input(array, "array"), kCall.output(out, "out")};
  check_same_type(buffers);
  AlltoallvOptions options(group->open());
  set_common(kCall, {tag, timeout, algorithm, waits}, options);
  set_input(buffers[0], counts(in_counts, kCall.what("counts"), group->size()), options);
  set_output(buffers[1], counts(out_counts, kCall.what("out_counts"), group->size()), options);
  return launch(group, std::move(options), std::move(buffers), waits, alltoallvAsync);
}

// Starts a gather or a gatherv, which differ in the counts only.
template <typename Options>
py::object gather_by(const Call& call, const GroupPointer& group, py::handle block, py::handle out,
                     py::handle root, py::handle out_counts, const Common& common,
                     Handle (*start)(const Options&)) {
  const int to = rank_of(root, call.what("root"), group->size());
  const bool is_root = to == group->rank();
  Buffers buffers{call.input(block, "block"), is_root ? call.output(out, "out") : Buffer()};
  check_same_type(buffers);
  Options options(group->open());
  options.setRoot(to);
  set_common(call, common, options);
  set_input(buffers[0], std::nullopt, options);
  set_output(buffers[1], counts(out_counts, call.what("counts"), group->size()), options);
  return launch(group, std::move(options), std::move(buffers), common.waits, start);
}

py::object gather(const GroupPointer& group, py::handle block, py::handle out, py::handle root,
                  py::handle tag, py::handle timeout, py::handle algorithm, bool waits) {
  return gather_by({"gather"}, group, block, out, root, py::none(),
                   {tag, timeout, algorithm, waits}, gatherAsync);
}

py::object gatherv(const GroupPointer& group, py::handle block, py::handle out, py::handle root,
                   py::handle out_counts, py::handle tag, py::handle timeout, py::handle algorithm,
                   bool waits) {
  return gather_by({"gatherv"}, group, block, out, root, out_counts,
                   {tag, timeout, algorithm, waits}, gathervAsync);
}

// Starts a scatter or a scatterv, which differ in the counts only.
template <typename Options>
py::object scatter_by(const Call& call, const GroupPointer& group, py::handle array, py::handle out,
                      py::handle root, py::handle in_counts, const Common& common,
                      Handle (*start)(const Options&)) {
  const int from = rank_of(root, call.what("root"), group->size());
  const bool is_root = from == group->rank();
  Buffers buffers{is_root ? call.input(array, "array") : Buffer(), call.output(out, "out")};
  check_same_type(buffers);
  Options options(group->open());
  options.setRoot(from);
  set_common(call, common, options);
  set_input(buffers[0], counts(in_counts, call.what("counts"), group->size()), options);
  set_output(buffers[1], std::nullopt, options);
  return launch(group, std::move(options), std::move(buffers), common.waits, start);
}

py::object scatter(const GroupPointer& group, py::handle array, py::handle out, py::handle root,
                   py::handle tag, py::handle timeout, py::handle algorithm, bool waits) {
  return scatter_by({"scatter"}, group, array, out, root, py::none(),
                    {tag, timeout, algorithm, waits}, scatterAsync);
}

py::object scatterv(const GroupPointer& group, py::handle array, py::handle out, py::handle root,
                    py::handle in_counts, py::handle tag, py::handle timeout, py::handle algorithm,
                    bool waits) {
  return scatter_by({"scatterv"}, group, array, out, root, in_counts,
                    {tag, timeout, algorithm, waits}, scattervAsync);
}

}  // namespace

void add_movements(py::class_<Group, std::shared_ptr<Group>>& group) {
  group.def("barrier", barrier)
      .def("broadcast", broadcast)
      .def("allgather", allgather)
      .def("alltoall", alltoall)
      .def("alltoallv", alltoallv)
      .def("gather", gather)
      .def("gatherv", gatherv)
      .def("scatter", scatter)
      .def("scatterv", scatterv);
}

}  // namespace nezha::python
