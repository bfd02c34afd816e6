// SPDX-License-Identifier: Apache-2.0
#include "bindings/buffer.h"

#include <nezha/errors.h>

#include <cstring>
#include <string_view>
#include <utility>

#include "bindings/arguments.h"

namespace nezha::python {
namespace {

enum class Kind { kSigned, kUnsigned, kFloat, kOther };

// Returns the meaning of a letter of Python's struct module.
Kind kind_of(char letter) {
  if (std::strchr("bhilqn", letter) != nullptr) return Kind::kSigned;
  if (std::strchr("BHILQNc", letter) != nullptr) return Kind::kUnsigned;
  if (std::strchr("efd", letter) != nullptr) return Kind::kFloat;
  return Kind::kOther;
}

bool is_of_this_machine(char order) {
  constexpr bool kLittle = __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__;
  return order == '@' || order == '=' || order == (kLittle ? '<' : '>');
}

// Returns the type of elements with this format (PEP 3118), if it is one of nezha's.
std::optional<DataType> type_of(std::string_view format, size_t size) {
  if (format.size() == 2 && is_of_this_machine(format[0])) format.remove_prefix(1);
  if (format.size() != 1) return std::nullopt;
  const bool is_signed = kind_of(format[0]) == Kind::kSigned;
  switch (kind_of(format[0])) {
    case Kind::kSigned:
    case Kind::kUnsigned:
      if (size == 1) return is_signed ? DataType::kInt8 : DataType::kUint8;
      if (size == 2) return is_signed ? DataType::kInt16 : DataType::kUint16;
      if (size == 4) return is_signed ? DataType::kInt32 : DataType::kUint32;
      if (size == 8) return is_signed ? DataType::kInt64 : DataType::kUint64;
      return std::nullopt;
    case Kind::kFloat:
      if (size == 2) return DataType::kFloat16;
      if (size == 4) return DataType::kFloat32;
      return DataType::kFloat64;
    case Kind::kOther:
      return std::nullopt;
  }
  return std::nullopt;
}

// Returns whether elements contain pointers. In the format, the names of fields are between colons.
bool has_objects(std::string_view format) {
  bool is_name = false;
  for (const char letter : format) {
    if (letter == ':') is_name = !is_name;
    if (!is_name && std::strchr("OP&X", letter) != nullptr) return true;
  }
  return false;
}

std::string type_name(py::handle object) { return Py_TYPE(object.ptr())->tp_name; }

}  // namespace

void Buffer::Release::operator()(Py_buffer* view) const {
  PyBuffer_Release(view);
  delete view;
}

Buffer::Buffer(py::handle object, const std::string& what, Access access) : what_(what) {
  if (PyObject_CheckBuffer(object.ptr()) == 0) {
    throw py::type_error(what + " has no buffer: it is " + type_name(object) +
                         ", and not a numpy array, bytearray, memoryview or the like");
  }
  auto view = std::make_unique<Py_buffer>();
  if (PyObject_GetBuffer(object.ptr(), view.get(), PyBUF_FULL_RO) != 0) {
    const py::error_already_set error;  // takes over and clears Python's error
    throw InvalidArgument(what + " gives no access to its memory (dates of numpy give it by " +
                          "array.view('int64')): " + error.what());
  }
  view_.reset(view.release());
  item_size_ = static_cast<size_t>(view_->itemsize);
  const std::string_view format = view_->format == nullptr ? "B" : view_->format;
  if (PyBuffer_IsContiguous(view_.get(), 'C') == 0) {
    throw InvalidArgument(what + " is not contiguous in C order: make a copy, for example by " +
                          "numpy.ascontiguousarray");
  }
  if (access == Access::kWrite && view_->readonly != 0) {
    throw InvalidArgument(what + " is read-only");
  }
  if (has_objects(format)) {
    throw InvalidArgument(what + " has Python objects for elements, which cannot be sent");
  }
  type_ = type_of(format, item_size_);
}

void Buffer::take_for_numbers(py::handle dtype) {
  if (!dtype.is_none()) {
    const DataType type = data_type(dtype, what_);
    const bool is_bytes = item_size_ == 1 && bytes() % sizeOf(type) == 0;
    if (item_size_ != sizeOf(type) && !is_bytes) {
      throw InvalidArgument(what_ + " has elements of " + std::to_string(item_size_) +
                            " bytes, which cannot be " + nameOf(type));
    }
    type_ = type;
    item_size_ = sizeOf(type);
  }
  if (!type_) {
    const char* format = view_->format;
    throw InvalidArgument(what_ + " has elements of the format '" + (format ? format : "B") +
                          "', which cannot be reduced: take integers of 8 to 64 bits, float16, " +
                          "float32 or float64, in this machine's byte order");
  }
}

std::vector<size_t> Buffer::blocks(std::vector<size_t> counts) const {
  const size_t here = item_size_ == 0 ? 0 : bytes() / item_size_;
  size_t left = here;
  bool fits = true;
  for (size_t& count : counts) {
    fits = fits && count <= left;
    left -= fits ? count : 0;
    if (!type_) count *= item_size_;
  }
  if (!fits || left != 0) {
    throw InvalidArgument(what_ + " has " + std::to_string(here) +
                          " elements, but its counts have another sum");
  }
  return counts;
}

void Buffer::check_same_type(const Buffer& other) const {
  if (type_ == other.type_ && item_size_ == other.item_size_) return;
  throw InvalidArgument(other.what_ + " has elements of another type than " + what_);
}

}  // namespace nezha::python
