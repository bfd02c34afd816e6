// SPDX-License-Identifier: Apache-2.0
// Starts operations, and waits for them.
#pragma once

#include <nezha/handle.h>
#include <pybind11/pybind11.h>

#include <chrono>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include "bindings/buffer.h"
#include "bindings/gil.h"
#include "bindings/group.h"

namespace nezha::python {

// The time between a wait's checks for signals.
constexpr std::chrono::milliseconds kSlice(200);

// Python's Handle: an operation, its memory and its context. All methods need the GIL.
class Operation {
 public:
  Operation(std::shared_ptr<Group> group, Handle handle, Buffers buffers);
  // Leaves an operation that is not over to the group (see Group::adopt).
  ~Operation();
  Operation(const Operation&) = delete;
  Operation& operator=(const Operation&) = delete;

  // Waits until the operation is over and returns true, or returns false after `timeout` seconds.
  // Any number of threads may wait. Throws the exception of a signal's handler; the operation goes
  // on.
  bool wait(py::handle timeout);
  bool test();
  py::object error();
  int source() const { return handle_.source(); }
  void cancel();

 private:
  bool wait_without_gil(std::chrono::milliseconds patience);

  std::shared_ptr<Group> group_;
  Buffers buffers_;  // empty once the operation is over
  Handle handle_;
  std::timed_mutex waiter_;  // locked by the thread that waits; nezha allows only one
};

// Adds Handle to the module.
void add_operation(py::module_& module);

// Waits until the operation is over. A signal whose handler raises an exception cancels it.
void finish(Handle& handle);

// Starts an operation with these options, which have the only pointer to the context except the
// group's own. If `waits`, waits for the operation and returns the rank that sent its message, or
// -1. Otherwise returns a handle.
template <typename Options>
py::object launch(const std::shared_ptr<Group>& group, Options options, Buffers buffers, bool waits,
                  Handle (*start)(const Options&)) {
  group->sweep();
  bool is_over = false;
  Handle handle = without_gil([&] {
    // Destroys the options, with their pointer to the context, before the wait, so that close() in
    // another thread leaves the group.
    const auto once = [](const Options own, auto begin) { return begin(own); };
    Handle started = once(std::move(options), start);
    if (waits) is_over = started.wait(kSlice);
    return started;
  });
  if (!waits) {
    return py::cast(std::make_unique<Operation>(group, std::move(handle), std::move(buffers)));
  }
  if (!is_over) finish(handle);
  return py::int_(handle.source());
}

}  // namespace nezha::python
