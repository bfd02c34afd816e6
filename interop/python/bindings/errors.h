// SPDX-License-Identifier: Apache-2.0
// nezha's exceptions in Python. The classes are in nezha/_errors.py.
#pragma once

#include <pybind11/pybind11.h>

#include <exception>

namespace nezha::python {

namespace py = pybind11;

// Thrown when the handler of a signal raises an exception during a wait. That exception is set as
// Python's error. This is not a std::exception, because nezha takes a std::exception of a store for
// a missing key.
struct Interrupted {};

// Returns a Python exception for an exception of nezha's or Gloo's, and None for null. Rethrows any
// other exception.
py::object exception_of(std::exception_ptr error);

// Makes this module, and no other one, turn such C++ exceptions into these Python exceptions.
void translate_errors();

}  // namespace nezha::python
