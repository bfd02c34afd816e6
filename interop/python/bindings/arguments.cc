// SPDX-License-Identifier: Apache-2.0
#include "bindings/arguments.h"

#include <nezha/errors.h>

#include <cmath>
#include <iterator>
#include <limits>
#include <utility>

namespace nezha::python {
namespace {

constexpr double kYear = 365.0 * 24 * 3600;  // seconds

constexpr std::pair<const char*, Algorithm> kAlgorithms[] = {
    {"auto", Algorithm::kAuto},
    {"ring", Algorithm::kRing},
    {"recursive-doubling", Algorithm::kRecursiveDoubling},
    {"halving-doubling", Algorithm::kHalvingDoubling},
    {"direct", Algorithm::kDirect},
    {"bcube", Algorithm::kBcube},
    {"bruck", Algorithm::kBruck},
    {"pairwise", Algorithm::kPairwise},
    {"tree", Algorithm::kTree},
};
constexpr std::pair<const char*, Plan> kPlans[] = {
    {"stripe", Plan::kStripe}, {"slice", Plan::kSlice}, {"auto", Plan::kAuto}};
constexpr std::pair<const char*, BalancePolicy> kPolicies[] = {
    {"model", BalancePolicy::kModel},
    {"paper", BalancePolicy::kPaper},
    {"none", BalancePolicy::kNone},
    {"shuffle", BalancePolicy::kShuffle}};
constexpr std::pair<const char*, Polling> kPollings[] = {{"latency-first", Polling::kLatencyFirst},
                                                         {"cpu-first", Polling::kCpuFirst}};
constexpr std::pair<const char*, ReduceOperation> kOperations[] = {
    {"sum", ReduceOperation::kSum},
    {"product", ReduceOperation::kProduct},
    {"min", ReduceOperation::kMin},
    {"max", ReduceOperation::kMax},
    {"average", ReduceOperation::kAverage}};
constexpr std::pair<const char*, DataType> kTypes[] = {
    {"uint8", DataType::kUint8},     {"int8", DataType::kInt8},
    {"uint16", DataType::kUint16},   {"int16", DataType::kInt16},
    {"uint32", DataType::kUint32},   {"int32", DataType::kInt32},
    {"uint64", DataType::kUint64},   {"int64", DataType::kInt64},
    {"float16", DataType::kFloat16}, {"bfloat16", DataType::kBFloat16},
    {"float32", DataType::kFloat32}, {"float64", DataType::kFloat64},
};

std::string type_name(py::handle object) { return Py_TYPE(object.ptr())->tp_name; }

// Looks the name up in a table. The members of the package's enumerations are text, too.
template <typename Value, size_t kSize>
Value named(py::handle object, const std::string& what,
            const std::pair<const char*, Value> (&table)[kSize]) {
  if (!PyUnicode_Check(object.ptr())) {
    throw py::type_error(what + " must be a name, and is " + type_name(object));
  }
  for (const auto& [name, value] : table) {
    if (PyUnicode_CompareWithASCIIString(object.ptr(), name) == 0) return value;
  }
  std::string names;
  for (size_t i = 0; i < kSize; ++i) {
    const char* const between = i + 1 == kSize ? " or " : ", ";
    names += std::string(i == 0 ? "" : between) + table[i].first;
  }
  throw InvalidArgument(what + " is " + py::repr(py::str(object)).cast<std::string>() +
                        "; it must be " + names);
}

double seconds(py::handle object, const std::string& what) {
  const bool is_delta = py::hasattr(object, "total_seconds");
  const py::object number = is_delta ? py::object(object.attr("total_seconds")())
                                     : py::reinterpret_borrow<py::object>(object);
  if (!PyFloat_Check(number.ptr()) && PyIndex_Check(number.ptr()) == 0) {
    throw py::type_error(what + " must be seconds or a datetime.timedelta, and is " +
                         type_name(object));
  }
  const double value = PyFloat_AsDouble(number.ptr());
  if (value == -1 && PyErr_Occurred() != nullptr) throw py::error_already_set();
  return value;
}

}  // namespace

int64_t integer(py::handle object, const std::string& what, int64_t least, int64_t most) {
  if (PyIndex_Check(object.ptr()) == 0) {
    throw py::type_error(what + " must be a whole number, and is " + type_name(object));
  }
  int is_too_large = 0;
  const auto index = py::reinterpret_steal<py::object>(PyNumber_Index(object.ptr()));
  if (!index) throw py::error_already_set();
  const int64_t value = PyLong_AsLongLongAndOverflow(index.ptr(), &is_too_large);
  if (is_too_large != 0 || value < least || value > most) {
    throw InvalidArgument(what + " is " + py::str(index).cast<std::string>() +
                          "; it must be from " + std::to_string(least) + " to " +
                          std::to_string(most));
  }
  return value;
}

int rank_of(py::handle object, const std::string& what, int size) {
  return static_cast<int>(integer(object, what, 0, size - 1));
}

std::optional<std::vector<size_t>> counts(py::handle object, const std::string& what, int size) {
  if (object.is_none()) return std::nullopt;
  if (PySequence_Check(object.ptr()) == 0) {
    throw py::type_error(what + " must be a sequence of whole numbers, and is " +
                         type_name(object));
  }
  std::vector<size_t> counts;
  for (const py::handle count : py::reinterpret_borrow<py::iterable>(object)) {
    const std::string which = what + "[" + std::to_string(counts.size()) + "]";
    counts.push_back(
        static_cast<size_t>(integer(count, which, 0, std::numeric_limits<int64_t>::max())));
  }
  if (counts.size() != static_cast<size_t>(size)) {
    throw InvalidArgument(what + " has " + std::to_string(counts.size()) +
                          " entries; it must have one for each of " + std::to_string(size) +
                          " ranks");
  }
  return counts;
}

std::optional<std::chrono::milliseconds> duration(py::handle object, const std::string& what) {
  if (object.is_none()) return std::nullopt;
  const double value = seconds(object, what);
  if (!(value >= 0)) {
    throw InvalidArgument(what + " is " + py::str(object).cast<std::string>() +
                          "; it must not be negative");
  }
  return std::chrono::milliseconds(static_cast<int64_t>(std::ceil(std::fmin(value, kYear) * 1000)));
}

std::optional<std::chrono::milliseconds> deadline(py::handle object, const std::string& what) {
  const auto found = duration(object, what);
  if (found && found->count() == 0) {
    throw InvalidArgument(what + " is 0 seconds; it must be more");
  }
  return found;
}

DataType data_type(py::handle object, const std::string& what) {
  return named(object, what + ": dtype", kTypes);
}

ReduceOperation reduce_operation(py::handle object, const std::string& what) {
  return named(object, what, kOperations);
}

std::optional<Algorithm> algorithm(py::handle object, const std::string& what) {
  if (object.is_none()) return std::nullopt;
  return named(object, what, kAlgorithms);
}

std::optional<Plan> plan(py::handle object) {
  if (object.is_none()) return std::nullopt;
  return named(object, "plan", kPlans);
}

std::optional<BalancePolicy> policy(py::handle object) {
  if (object.is_none()) return std::nullopt;
  return named(object, "policy", kPolicies);
}

std::optional<Polling> polling(py::handle object) {
  if (object.is_none()) return std::nullopt;
  return named(object, "polling", kPollings);
}

}  // namespace nezha::python
