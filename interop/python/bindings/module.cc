// SPDX-License-Identifier: Apache-2.0
// The module nezha._nezha: the C++ part of the Python package nezha.
#include <nezha/environment.h>
#include <nezha/interfaces.h>
#include <nezha/launch.h>
#include <nezha/version.h>
#include <pybind11/pybind11.h>

#include "bindings/collectives.h"
#include "bindings/errors.h"
#include "bindings/gil.h"
#include "bindings/group.h"
#include "bindings/operation.h"
#include "bindings/reports.h"
#include "bindings/stores.h"

namespace nezha::python {
namespace {

void fill(py::module_& module) {
  translate_errors();
  add_stores(module);
  add_operation(module);
  auto group = add_group(module);
  add_reductions(group);
  add_movements(group);
  add_point_to_point(group);
  module.def("version", version);
  module.def("environment_help", environmentHelp);
  module.def("network_interfaces",
             [] { return to_python(without_gil([] { return networkInterfaces(); })); });
  module.def("launch_environment", [] { return to_python(launchEnvironment()); });
}

}  // namespace
}  // namespace nezha::python

PYBIND11_MODULE(_nezha, module) { nezha::python::fill(module); }
