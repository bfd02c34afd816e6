// SPDX-License-Identifier: Apache-2.0
// nezha's exceptions in Python. The classes are in nezha/_errors.py.
#pragma once

#include <pybind11/pybind11.h>

#include <exception>

namespace nezha::python {

namespace py = pybind11;

// The end of a wait by an exception of a signal's handler, which is set as Python's error. This is
// no std::exception, since nezha takes such an exception of a store for a key that is not there.
struct Interrupted {};

// A Python exception for one of nezha's or Gloo's. None for null. Rethrows what is neither.
py::object exception_of(std::exception_ptr error);

// Makes this module, and no other one, raise such C++ exceptions in Python as these.
void translate_errors();

}  // namespace nezha::python
