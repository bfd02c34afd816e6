// SPDX-License-Identifier: Apache-2.0
// A context, and the state that Python needs with it.
#pragma once

#include <nezha/context.h>
#include <nezha/handle.h>
#include <pybind11/pybind11.h>

#include <chrono>
#include <memory>
#include <vector>

#include "bindings/buffer.h"

namespace nezha::python {

namespace py = pybind11;

// Python's Context. All methods need the GIL, and release it while they wait.
class Group {
 public:
  explicit Group(std::shared_ptr<Context> context);
  // Calls close().
  ~Group();
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;

  // Returns the context. Throws InvalidArgument if it is closed. The pointer must be released
  // without the GIL, because releasing the last one leaves the group, which takes time.
  std::shared_ptr<Context> open() const;
  bool is_closed() const { return context_ == nullptr; }

  int rank() const { return rank_; }
  int size() const { return size_; }
  std::chrono::milliseconds timeout() const { return timeout_; }

  // Leaves the group. Operations that are in flight fail. Does nothing if the context is closed.
  void close();

  // Keeps an operation whose handle Python has dropped. The operation goes on, and its memory stays
  // until it is over.
  void adopt(Handle handle, Buffers buffers);
  // Releases the memory of adopted operations that are over.
  void sweep();

 private:
  struct Adopted {
    Handle handle;
    Buffers buffers;
  };

  std::shared_ptr<Context> context_;  // null: closed
  int rank_;
  int size_;
  std::chrono::milliseconds timeout_;
  std::vector<Adopted> adopted_;
};

// Adds Context to the module, without its collectives.
py::class_<Group, std::shared_ptr<Group>> add_group(py::module_& module);

// Returns whether an operation is over. Returns true also in a child of fork(), where nezha refuses
// to say, since there is nothing to wait for.
bool is_over(const Handle& handle);

}  // namespace nezha::python
