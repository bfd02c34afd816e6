// SPDX-License-Identifier: Apache-2.0
#include "bindings/operation.h"

#include <nezha/errors.h>

#include <algorithm>
#include <exception>

#include "bindings/arguments.h"
#include "bindings/errors.h"

namespace nezha::python {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

Operation::Operation(std::shared_ptr<Group> group, Handle handle, Buffers buffers)
    : group_(std::move(group)), buffers_(std::move(buffers)), handle_(std::move(handle)) {}

Operation::~Operation() {
  if (!is_over(handle_)) group_->adopt(std::move(handle_), std::move(buffers_));
}

bool Operation::wait_without_gil(milliseconds patience) {
  static_cast<void>(handle_.test());  // throws in a child of fork(), where nobody unlocks waiter_
  const auto end = Clock::now() + patience;
  return without_gil([&] {
    const std::unique_lock lock(waiter_, end);
    if (lock.owns_lock()) {
      const auto left = std::chrono::ceil<milliseconds>(end - Clock::now());
      return handle_.wait(std::max(left, milliseconds(0)));
    }
    // Another thread waits, and may not know yet that the operation is over.
    if (!handle_.test()) return false;
    if (const auto error = handle_.error()) std::rethrow_exception(error);
    return true;
  });
}

bool Operation::wait(py::handle timeout) {
  const auto patience = duration(timeout, "wait: timeout");
  const auto end = Clock::now() + patience.value_or(milliseconds(0));
  for (;;) {
    const auto left = std::chrono::ceil<milliseconds>(end - Clock::now());
    const auto slice = patience ? std::clamp(left, milliseconds(0), kSlice) : kSlice;
    bool is_done = false;
    try {
      is_done = wait_without_gil(slice);
    } catch (const IoError&) {
      buffers_ = {};
      throw;
    }
    if (is_done) buffers_ = {};
    if (is_done || (patience && Clock::now() >= end)) return is_done;
    if (PyErr_CheckSignals() != 0) throw py::error_already_set();
  }
}

bool Operation::test() {
  const bool is_done = handle_.test();
  if (is_done) buffers_ = {};
  return is_done;
}

py::object Operation::error() { return exception_of(handle_.error()); }

void Operation::cancel() {
  without_gil([&] { handle_.cancel(); });
  buffers_ = {};
}

void add_operation(py::module_& module) {
  py::class_<Operation>(module, "Handle")
      .def(
          "wait", &Operation::wait, py::arg("timeout") = py::none(),
          "Waits until the operation is over and returns True, or returns False after `timeout`\n"
          "seconds (or a timedelta), which does the operation no harm. Raises the operation's\n"
          "IoError or TimeoutError if it has failed. Ctrl-C ends the wait, and the operation goes\n"
          "on.")
      .def("test", &Operation::test,
           "Whether the operation is over, well or not. Never blocks, and never raises the\n"
           "operation's error.")
      .def(
          "error", &Operation::error,
          "The exception that wait() would raise. None while the operation is not over, and after\n"
          "success.")
      .def("source", &Operation::source,
           "The rank that a receive's message has come from. -1 for all other operations, while "
           "the\n"
           "receive is not over, and if it has failed.")
      .def("cancel", &Operation::cancel,
           "Gives the memory back now. An operation that was not over fails on all ranks, and "
           "their\n"
           "errors name this rank: the context is broken.");
}

void finish(Handle& handle) {
  for (;;) {
    if (PyErr_CheckSignals() != 0) {
      py::error_already_set error;  // takes over Python's error until restore()
      without_gil([&] { handle.cancel(); });
      error.restore();
      throw py::error_already_set();
    }
    if (without_gil([&] { return handle.wait(kSlice); })) return;
  }
}

}  // namespace nezha::python
