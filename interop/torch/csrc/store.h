// SPDX-License-Identifier: Apache-2.0
// Makes PyTorch's store the store of a nezha context.
#pragma once

#include <gloo/rendezvous/store.h>

#include <chrono>
#include <map>
#include <mutex>
#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <vector>

namespace nezha_torch {

// The class is thread-safe. The program may use the same store at the same time, because no call
// blocks the store while it waits. Throws the store's errors.
class Store final : public gloo::rendezvous::Store {
 public:
  // All keys get this prefix.
  Store(c10::intrusive_ptr<c10d::Store> store, std::string prefix)
      : prefix_(std::move(prefix)), store_(std::move(store)) {}

  void set(const std::string& key, const std::vector<char>& data) override;
  std::vector<char> get(const std::string& key) override;
  void wait(const std::vector<std::string>& keys) override;
  void wait(const std::vector<std::string>& keys,
            const std::chrono::milliseconds& timeout) override;

  // Fetches the values of these keys, which must be there, and releases PyTorch's store. From then
  // on this store has these values and nothing else.
  void leave(const std::vector<std::string>& keys);

 private:
  c10::intrusive_ptr<c10d::Store> store() const;  // null after leave()
  bool has(const std::vector<std::string>& keys);

  const std::string prefix_;
  mutable std::mutex mutex_;  // guards the members; never held during a call of the store
  c10::intrusive_ptr<c10d::Store> store_;
  std::map<std::string, std::vector<char>> known_;
};

}  // namespace nezha_torch
