// SPDX-License-Identifier: Apache-2.0
#include "bindings/stores.h"

#include <gloo/rendezvous/file_store.h>
#include <nezha/errors.h>
#include <nezha/redis_store.h>
#include <pybind11/stl.h>

#include <filesystem>
#include <stdexcept>
#include <system_error>

#include "bindings/arguments.h"
#include "bindings/errors.h"
#include "bindings/gil.h"

namespace nezha::python {
namespace {

using std::chrono::milliseconds;

// Gloo's store in a directory. Gloo's own object is not thread-safe, so each call makes one. That
// works because the directory has all of the store's state.
class FileStore final : public Store {
 public:
  explicit FileStore(const std::string& path) {
    std::error_code error;
    if (!std::filesystem::is_directory(path, error)) {
      throw InvalidArgument("FileStore: '" + path +
                            "' is no directory; make it before the ranks start");
    }
    path_ = std::filesystem::canonical(path).string();
  }

  void set(const std::string& key, const std::vector<char>& data) override {
    gloo().set(key, data);
  }
  std::vector<char> get(const std::string& key) override { return gloo().get(key); }
  void wait(const std::vector<std::string>& keys) override { gloo().wait(keys); }
  void wait(const std::vector<std::string>& keys, const milliseconds& timeout) override {
    gloo().wait(keys, timeout);
  }

 private:
  ::gloo::rendezvous::FileStore gloo() const { return ::gloo::rendezvous::FileStore(path_); }

  std::string path_;
};

// Gloo's PrefixStore, except that it keeps the other store alive.
class PrefixStore final : public Store {
 public:
  PrefixStore(std::string prefix, std::shared_ptr<Store> store)
      : prefix_(std::move(prefix)), store_(std::move(store)) {}

  void set(const std::string& key, const std::vector<char>& data) override {
    store_->set(full(key), data);
  }
  std::vector<char> get(const std::string& key) override { return store_->get(full(key)); }
  void wait(const std::vector<std::string>& keys) override { store_->wait(full(keys)); }
  void wait(const std::vector<std::string>& keys, const milliseconds& timeout) override {
    store_->wait(full(keys), timeout);
  }

 private:
  std::string full(const std::string& key) const { return prefix_ + "/" + key; }
  std::vector<std::string> full(std::vector<std::string> keys) const {
    for (std::string& key : keys) key = full(key);
    return keys;
  }

  std::string prefix_;
  std::shared_ptr<Store> store_;
};

// Runs a function that calls Python, with the GIL. Its errors become C++ exceptions that need no
// GIL.
template <typename Work>
auto with_gil(const Work& work) -> decltype(work()) {
  if (Py_IsInitialized() == 0) throw std::runtime_error("the Python interpreter has ended");
  const WithGil gil;
  try {
    return or_sleep(work);
  } catch (py::error_already_set& error) {
    if (error.matches(PyExc_KeyboardInterrupt)) {
      error.restore();
      throw Interrupted();
    }
    throw std::runtime_error(error.what());
  } catch (const py::cast_error& error) {
    throw std::runtime_error(error.what());
  }
}

// Calls a method. If Python ends the thread in it, `arguments` are not destroyed.
py::object call(const py::object& object, const char* method, const py::tuple& arguments) {
  PyObject* const result = or_sleep([&]() -> PyObject* {
    PyObject* const bound = PyObject_GetAttrString(object.ptr(), method);
    if (bound == nullptr) return nullptr;
    PyObject* const returned = PyObject_Call(bound, arguments.ptr(), nullptr);
    Py_DECREF(bound);
    return returned;
  });
  if (result == nullptr) throw py::error_already_set();
  return py::reinterpret_steal<py::object>(result);
}

// A store that is written in Python.
class PythonStore final : public Store {
 public:
  explicit PythonStore(py::object object) : object_(std::move(object)) {}

  ~PythonStore() override {
    if (Py_IsInitialized() == 0) {
      object_.release();  // the object ended with the interpreter
      return;
    }
    const WithGil gil;
    or_sleep([this] { object_.release().dec_ref(); });
  }

  void set(const std::string& key, const std::vector<char>& data) override {
    with_gil(
        [&] { call(object_, "set", py::make_tuple(key, py::bytes(data.data(), data.size()))); });
  }
  std::vector<char> get(const std::string& key) override {
    return with_gil([&] {
      const std::string value = py::bytes(call(object_, "get", py::make_tuple(key)));
      return std::vector<char>(value.begin(), value.end());
    });
  }
  void wait(const std::vector<std::string>& keys) override { wait(keys, kDefaultTimeout); }
  void wait(const std::vector<std::string>& keys, const milliseconds& timeout) override {
    const double seconds = static_cast<double>(timeout.count()) / 1000;
    with_gil([&] { call(object_, "wait", py::make_tuple(keys, seconds)); });
  }

 private:
  py::object object_;
};

void set(Store& store, const std::string& key, const py::bytes& value) {
  const std::string text = value;
  without_gil([&] { store.set(key, std::vector<char>(text.begin(), text.end())); });
}

py::bytes get(Store& store, const std::string& key) {
  const std::vector<char> value = without_gil([&] { return store.get(key); });
  return py::bytes(value.data(), value.size());
}

void wait(Store& store, const std::vector<std::string>& keys, py::handle timeout) {
  const milliseconds time = deadline(timeout, "timeout").value_or(Store::kDefaultTimeout);
  without_gil([&] { store.wait(keys, time); });
}

}  // namespace

void add_stores(py::module_& module) {
  // The class is local, since another module may have Gloo's class, too.
  py::class_<Store, std::shared_ptr<Store>>(module, "Store", py::module_local())
      .def("set", set, py::arg("key"), py::arg("value"))
      .def("get", get, py::arg("key"))
      .def("wait", wait, py::arg("keys"), py::arg("timeout") = py::none());
  py::class_<FileStore, Store, std::shared_ptr<FileStore>>(module, "FileStore")
      .def(py::init<std::string>(), py::arg("path"));
  py::class_<RedisStore, Store, std::shared_ptr<RedisStore>>(module, "RedisStore")
      .def(py::init([](const std::string& url) {
             return without_gil([&] { return std::make_shared<RedisStore>(url); });
           }),
           py::arg("url"));
  py::class_<PrefixStore, Store, std::shared_ptr<PrefixStore>>(module, "PrefixStore")
      .def(py::init([](std::string prefix, py::handle store) {
             return std::make_shared<PrefixStore>(std::move(prefix), store_of(store));
           }),
           py::arg("prefix"), py::arg("store"));
}

std::shared_ptr<Store> store_of(py::handle object) {
  if (py::isinstance<Store>(object)) return object.cast<std::shared_ptr<Store>>();
  for (const char* method : {"set", "get", "wait"}) {
    if (py::hasattr(object, method)) continue;
    throw py::type_error(std::string("store: ") + Py_TYPE(object.ptr())->tp_name +
                         " is no store: it has no method '" + method + "'");
  }
  return std::make_shared<PythonStore>(py::reinterpret_borrow<py::object>(object));
}

void AttentiveStore::look_for_signals() const {
  if (is_released_ || std::this_thread::get_id() != maker_) return;
  const WithGil gil;
  if (PyErr_CheckSignals() != 0) throw Interrupted();
}

void AttentiveStore::set(const std::string& key, const std::vector<char>& data) {
  store_->set(key, data);
}

std::vector<char> AttentiveStore::get(const std::string& key) { return store_->get(key); }

void AttentiveStore::wait(const std::vector<std::string>& keys) {
  wait(keys, Store::kDefaultTimeout);
}

void AttentiveStore::wait(const std::vector<std::string>& keys, const milliseconds& timeout) {
  look_for_signals();
  store_->wait(keys, timeout);
}

}  // namespace nezha::python
