// SPDX-License-Identifier: Apache-2.0
// Rendezvous stores, as Python has them.
#pragma once

#include <gloo/rendezvous/store.h>
#include <pybind11/pybind11.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace nezha::python {

namespace py = pybind11;

using Store = ::gloo::rendezvous::Store;

// Adds FileStore, RedisStore and PrefixStore to the module.
void add_stores(py::module_& module);

// Returns the store for a Python object: one of those above, or any object that has their methods,
// which are called from any thread. Throws TypeError if the object is no store.
std::shared_ptr<Store> store_of(py::handle object);

// Wraps a store during a call that Ctrl-C can end: the thread that made this object checks for
// signals each time that it asks the store, until release(). The class is as thread-safe as the
// wrapped store.
class AttentiveStore final : public Store {
 public:
  explicit AttentiveStore(std::shared_ptr<Store> store) : store_(std::move(store)) {}

  void release() { is_released_ = true; }

  void set(const std::string& key, const std::vector<char>& data) override;
  std::vector<char> get(const std::string& key) override;
  void wait(const std::vector<std::string>& keys) override;
  void wait(const std::vector<std::string>& keys,
            const std::chrono::milliseconds& timeout) override;

 private:
  void look_for_signals() const;

  std::shared_ptr<Store> store_;
  std::thread::id maker_ = std::this_thread::get_id();
  std::atomic<bool> is_released_{false};
};

}  // namespace nezha::python
