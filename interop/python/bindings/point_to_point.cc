// SPDX-License-Identifier: Apache-2.0
#include <nezha/errors.h>
#include <nezha/send_recv.h>

#include "bindings/call.h"
#include "bindings/collectives.h"

namespace nezha::python {
namespace {

constexpr int64_t kLargestMessageTag = (int64_t{1} << 62) - 1;

// Returns the memory of an argument that must be given.
Buffer whole(const Call& call, py::handle array, Buffer::Access access) {
  return Buffer(array, call.what("array"), access);
}

py::object send(const GroupPointer& group, py::handle array, py::handle destination, py::handle tag,
                py::handle timeout, bool waits) {
  constexpr Call kCall{"send"};
  Buffers buffers{whole(kCall, array, Buffer::Access::kRead), Buffer()};
  SendOptions options(group->open());
  options.setDestination(rank_of(destination, kCall.what("destination"), group->size()));
  set_tag(kCall, {tag, timeout, py::none(), waits}, kLargestMessageTag, options);
  options.setInput(static_cast<const void*>(buffers[0].data()), buffers[0].bytes());
  return launch(group, std::move(options), std::move(buffers), waits, sendAsync);
}

// Sets the source: one rank, a sequence of ranks, or None for any.
void set_source(const Call& call, py::handle source, int size, RecvOptions& options) {
  const std::string what = call.what("source");
  if (source.is_none()) {
    options.setAnySource();
  } else if (PySequence_Check(source.ptr()) != 0) {
    std::vector<int> ranks;
    for (const py::handle rank : py::reinterpret_borrow<py::iterable>(source)) {
      ranks.push_back(rank_of(rank, what, size));
    }
    options.setSources(std::move(ranks));
  } else {
    options.setSource(rank_of(source, what, size));
  }
}

py::object recv(const GroupPointer& group, py::handle array, py::handle source, py::handle tag,
                py::handle timeout, bool waits) {
  constexpr Call kCall{"recv"};
  Buffers buffers{whole(kCall, array, Buffer::Access::kWrite), Buffer()};
  RecvOptions options(group->open());
  set_source(kCall, source, group->size(), options);
  set_tag(kCall, {tag, timeout, py::none(), waits}, kLargestMessageTag, options);
  options.setOutput(buffers[0].data(), buffers[0].bytes());
  return launch(group, std::move(options), std::move(buffers), waits, recvAsync);
}

}  // namespace

void add_point_to_point(py::class_<Group, std::shared_ptr<Group>>& group) {
  group.def("send", send).def("recv", recv);
}

}  // namespace nezha::python
