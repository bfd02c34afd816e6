// SPDX-License-Identifier: Apache-2.0
// Python's global interpreter lock (GIL), and nezha's threads.
//
// No thread may wait for one of nezha's locks while it has the GIL, unless each thread that has
// this lock goes on without the GIL. A store written in Python takes the GIL while nezha holds
// locks. So everything that waits, starts or destroys runs inside of without_gil().
//
// When the interpreter has ended, Python calls pthread_exit in a thread that asks for the GIL. This
// unwinds the stack without the GIL. Each destructor that needs the GIL, each destructor that asks
// for the GIL and each `catch (...)` on the way would end the process. Here such a thread sleeps
// instead until the process ends, as it does in Python 3.14. This happens only to daemon threads,
// and to threads of nezha's that belong to a call of such a thread.
#pragma once

#include <cxxabi.h>
#include <pybind11/pybind11.h>
#include <unistd.h>

namespace nezha::python {

namespace py = pybind11;

// Returns what `work` returns, unless Python ends the thread in `work`: the thread then sleeps.
// `work` should have no variables whose destructors need the GIL, since these are destroyed first.
template <typename Work>
auto or_sleep(const Work& work) -> decltype(work()) {
  try {
    return work();
  } catch (abi::__forced_unwind&) {
    for (;;) pause();
  }
}

// The thread has the GIL while this lives.
class WithGil {
 public:
  WithGil() : state_(or_sleep(PyGILState_Ensure)) {}
  ~WithGil() { PyGILState_Release(state_); }
  WithGil(const WithGil&) = delete;
  WithGil& operator=(const WithGil&) = delete;

 private:
  PyGILState_STATE state_;
};

// The thread gives up the GIL while this lives.
class WithoutGil {
 public:
  WithoutGil() : state_(PyEval_SaveThread()) {}
  ~WithoutGil() {
    or_sleep([this] { PyEval_RestoreThread(state_); });
  }
  WithoutGil(const WithoutGil&) = delete;
  WithoutGil& operator=(const WithoutGil&) = delete;

 private:
  PyThreadState* state_;
};

// Runs `work` without the GIL, and returns with the GIL, also if `work` throws.
template <typename Work>
auto without_gil(Work&& work) -> decltype(work()) {
  const WithoutGil guard;
  return work();
}

}  // namespace nezha::python
