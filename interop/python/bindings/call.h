// SPDX-License-Identifier: Apache-2.0
// The parts that the bindings of all operations share.
#pragma once

#include <nezha/collective_options.h>
#include <pybind11/pybind11.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bindings/arguments.h"
#include "bindings/buffer.h"
#include "bindings/group.h"
#include "bindings/operation.h"

namespace nezha::python {

using GroupPointer = std::shared_ptr<Group>;

// One call of an operation. It names the arguments in errors.
struct Call {
  const char* name;

  std::string what(const char* argument) const { return std::string(name) + ": " + argument; }

  // Returns an argument's memory. The buffer has no object if the argument is None.
  Buffer input(py::handle object, const char* argument) const {
    if (object.is_none()) return {};
    return Buffer(object, what(argument), Buffer::Access::kRead);
  }
  Buffer output(py::handle object, const char* argument) const {
    if (object.is_none()) return {};
    return Buffer(object, what(argument), Buffer::Access::kWrite);
  }
};

// The arguments that every collective has.
struct Common {
  py::handle tag;
  py::handle timeout;
  py::handle algorithm;
  bool waits;
};

// Sets the tag and the deadline.
template <typename Options>
void set_tag(const Call& call, const Common& common, int64_t largest, Options& options) {
  using Tag = std::conditional_t<std::is_base_of_v<CollectiveOptions, Options>, uint32_t, uint64_t>;
  options.setTag(static_cast<Tag>(integer(common.tag, call.what("tag"), 0, largest)));
  if (const auto timeout = deadline(common.timeout, call.what("timeout"))) {
    options.setTimeout(*timeout);
  }
}

constexpr int64_t kLargestTag = UINT32_MAX - int64_t{1};  // a collective's largest tag

// Sets the tag, the deadline and the algorithm, for a collective that has algorithms.
template <typename Options>
void set_common(const Call& call, const Common& common, Options& options) {
  set_tag(call, common, kLargestTag, options);
  if (const auto chosen = algorithm(common.algorithm, call.what("algorithm"))) {
    options.setAlgorithm(*chosen);
  }
}

// Sets the input of a collective of blocks. The blocks have equal lengths, or the lengths `counts`,
// in elements of the object. Does nothing if there is no object.
template <typename Options>
void set_input(const Buffer& buffer, std::optional<std::vector<size_t>> counts, Options& options) {
  if (!buffer) return;
  if (counts) {
    options.setInput(buffer.type(), buffer.data(), buffer.blocks(*std::move(counts)));
  } else {
    options.setInput(buffer.type(), buffer.data(), buffer.elements());
  }
}

// Sets the output in the same way.
template <typename Options>
void set_output(const Buffer& buffer, std::optional<std::vector<size_t>> counts, Options& options) {
  if (!buffer) return;
  if (counts) {
    options.setOutput(buffer.type(), buffer.data(), buffer.blocks(*std::move(counts)));
  } else {
    options.setOutput(buffer.type(), buffer.data(), buffer.elements());
  }
}

inline void check_same_type(const Buffers& buffers) {
  if (buffers[0] && buffers[1]) buffers[0].check_same_type(buffers[1]);
}

}  // namespace nezha::python
