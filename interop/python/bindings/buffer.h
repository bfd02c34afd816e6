// SPDX-License-Identifier: Apache-2.0
// The memory of Python objects that have the buffer protocol.
#pragma once

#include <nezha/types.h>
#include <pybind11/pybind11.h>

#include <array>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace nezha::python {

namespace py = pybind11;

// The contiguous memory of one object. The memory is neither moved nor freed while this lives. All
// methods need the GIL.
class Buffer {
 public:
  enum class Access { kRead, kWrite };

  // Makes a buffer that has no object.
  Buffer() = default;
  // `what` names the argument in errors, such as "allreduce: out". Throws TypeError if the object
  // has no buffer, and InvalidArgument if the buffer is not contiguous, is read-only although it is
  // to be written, or has Python objects as elements.
  Buffer(py::handle object, const std::string& what, Access access);

  Buffer(Buffer&&) noexcept = default;
  Buffer& operator=(Buffer&&) noexcept = default;

  explicit operator bool() const { return view_ != nullptr; }
  void* data() const { return view_->buf; }
  size_t bytes() const { return static_cast<size_t>(view_->len); }

  // Treats the elements as numbers to reduce, of the object's own type or of the type that `dtype`
  // names ("bfloat16"). The named type must have the size of the elements unless these are bytes.
  // Throws InvalidArgument if there is no such type.
  void take_for_numbers(py::handle dtype);

  // Returns the type of the elements, or bytes if nezha has no such type.
  DataType type() const { return type_.value_or(DataType::kUint8); }
  // Returns how many elements of type() there are.
  size_t elements() const { return bytes() / sizeOf(type()); }

  // Converts the lengths of blocks from the object's elements to elements of type(). Throws
  // InvalidArgument unless they add up to the buffer's length.
  std::vector<size_t> blocks(std::vector<size_t> counts) const;

  // Throws InvalidArgument unless both have elements of one kind.
  void check_same_type(const Buffer& other) const;

 private:
  struct Release {
    void operator()(Py_buffer* view) const;
  };

  // A pointer, since the structure may point to itself and cannot be moved.
  std::unique_ptr<Py_buffer, Release> view_;
  std::string what_;
  size_t item_size_ = 1;
  std::optional<DataType> type_;
};

// The memory that one operation reads and writes.
using Buffers = std::array<Buffer, 2>;

}  // namespace nezha::python
