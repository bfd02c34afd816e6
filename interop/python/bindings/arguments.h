// SPDX-License-Identifier: Apache-2.0
// Converts the arguments of Python calls to C++. All functions throw TypeError for an object of the
// wrong type, and InvalidArgument for a wrong value. `what` names the argument in errors.
#pragma once

#include <nezha/algorithm.h>
#include <nezha/context.h>
#include <nezha/types.h>
#include <pybind11/pybind11.h>

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace nezha::python {

namespace py = pybind11;

// Returns a whole number from `least` to `most`.
int64_t integer(py::handle object, const std::string& what, int64_t least, int64_t most);

// Returns a rank of 0 to size - 1.
int rank_of(py::handle object, const std::string& what, int size);

// Returns a length for each rank, in elements. None stands for "not given".
std::optional<std::vector<size_t>> counts(py::handle object, const std::string& what, int size);

// Returns a duration from seconds or a datetime.timedelta, from 0 to a year, rounded up to
// milliseconds. None stands for "not given".
std::optional<std::chrono::milliseconds> duration(py::handle object, const std::string& what);

// Returns a duration that is a deadline: it must be more than 0.
std::optional<std::chrono::milliseconds> deadline(py::handle object, const std::string& what);

// These take names, as text or as a member of one of the package's enumerations. None stands for
// "not given".
DataType data_type(py::handle object, const std::string& what);
ReduceOperation reduce_operation(py::handle object, const std::string& what);
std::optional<Algorithm> algorithm(py::handle object, const std::string& what);
std::optional<Plan> plan(py::handle object);
std::optional<BalancePolicy> policy(py::handle object);
std::optional<Polling> polling(py::handle object);

}  // namespace nezha::python
