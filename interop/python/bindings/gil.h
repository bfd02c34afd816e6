// SPDX-License-Identifier: Apache-2.0
// Python's global interpreter lock (GIL), and nezha's threads.
//
// No thread may wait for one of nezha's locks while it has the GIL, unless each thread that has
// this lock goes on without the GIL. A store written in Python takes the GIL while nezha holds
// locks. So everything that waits, starts or destroys runs inside of without_gil().
#pragma once

#include <cxxabi.h>
#include <pybind11/pybind11.h>

#include <type_traits>

namespace nezha::python {

namespace py = pybind11;

// Runs `work` without the GIL, and returns with the GIL, also if `work` throws.
//
// Python ends a daemon thread that asks for the GIL after the interpreter has gone, by
// pthread_exit: this unwinds the stack without the GIL. A destructor (such as that of
// py::gil_scoped_release) is no place for it, since it would end the process.
template <typename Work>
auto without_gil(Work&& work) -> decltype(work()) {
  PyThreadState* const state = PyEval_SaveThread();
  try {
    if constexpr (std::is_void_v<decltype(work())>) {
      work();
      PyEval_RestoreThread(state);
    } else {
      auto result = work();
      PyEval_RestoreThread(state);
      return result;
    }
  } catch (abi::__forced_unwind&) {
    throw;
  } catch (...) {
    PyEval_RestoreThread(state);
    throw;
  }
}

}  // namespace nezha::python
