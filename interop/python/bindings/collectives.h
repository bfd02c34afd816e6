// SPDX-License-Identifier: Apache-2.0
// The operations, as methods of Python's Context. nezha/_context.py documents them, and has the
// arguments' names and defaults. Here arguments are positional.
#pragma once

#include <pybind11/pybind11.h>

#include <memory>

#include "bindings/group.h"

namespace nezha::python {

// Adds allreduce, reduce and reduce_scatter.
void add_reductions(py::class_<Group, std::shared_ptr<Group>>& group);
// Adds the other collectives.
void add_movements(py::class_<Group, std::shared_ptr<Group>>& group);
// Adds send and recv.
void add_point_to_point(py::class_<Group, std::shared_ptr<Group>>& group);

}  // namespace nezha::python
