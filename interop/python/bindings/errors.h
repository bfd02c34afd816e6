// SPDX-License-Identifier: Apache-2.0
// nezha's exceptions in Python. The classes are in nezha/_errors.py.
#pragma once

#include <pybind11/pybind11.h>

#include <exception>

namespace nezha::python {

namespace py = pybind11;

// A Python exception for one of nezha's or Gloo's. None for null. Rethrows what is neither.
py::object exception_of(std::exception_ptr error);

// Makes this module, and no other one, raise such C++ exceptions in Python as these.
void translate_errors();

}  // namespace nezha::python
