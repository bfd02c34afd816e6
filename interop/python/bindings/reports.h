// SPDX-License-Identifier: Apache-2.0
// Converts nezha's reports about rails, the balancer and the host to the dataclasses of
// nezha/_reports.py.
#pragma once

#include <nezha/context.h>
#include <nezha/interfaces.h>
#include <nezha/launch.h>
#include <pybind11/pybind11.h>

#include <vector>

namespace nezha::python {

namespace py = pybind11;

py::object to_python(const std::vector<RailStats>& rails);
py::object to_python(const BalanceStats& balance);
py::object to_python(const std::vector<NetworkInterface>& interfaces);
py::object to_python(const LaunchEnvironment& launch);

}  // namespace nezha::python
