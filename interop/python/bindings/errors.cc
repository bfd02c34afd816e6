// SPDX-License-Identifier: Apache-2.0
#include "bindings/errors.h"

#include <nezha/errors.h>

#include <utility>

#include "bindings/gil.h"

namespace nezha::python {
namespace {

py::object make(const char* name, const char* what) {
  return py::module_::import("nezha._errors").attr(name)(what);
}

py::object make(const char* name, const IoError& error) {
  py::list ranks;
  for (const int rank : error.ranks()) ranks.append(rank);
  return py::module_::import("nezha._errors").attr(name)(error.what(), ranks);
}

}  // namespace

py::object exception_of(std::exception_ptr error) {
  if (error == nullptr) return py::none();
  try {
    std::rethrow_exception(std::move(error));
  } catch (const TimeoutError& timeout) {
    return make("TimeoutError", timeout);
  } catch (const IoError& io) {
    return make("IoError", io);
  } catch (const InvalidArgument& invalid) {
    return make("InvalidArgument", invalid.what());
  } catch (const ::gloo::IoException& store) {
    return make("IoError", store.what());  // thrown by a store of Gloo
  } catch (const ::gloo::Exception& other) {
    return make("Error", other.what());
  }
}

void translate_errors() {
  // A global translator would also translate for PyTorch, whose own Gloo throws some of these
  // exceptions.
  py::register_local_exception_translator([](std::exception_ptr error) {
    if (error == nullptr) return;
    or_sleep([&] {
      try {
        const py::object made = exception_of(std::move(error));
        PyErr_SetObject(py::type::handle_of(made).ptr(), made.ptr());
      } catch (const Interrupted&) {
        // Python's error is set.
      }
    });
  });
}

}  // namespace nezha::python
