// SPDX-License-Identifier: Apache-2.0
// A rendezvous store that counts what it is asked for.
#pragma once

#include <gloo/rendezvous/store.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace nezha::bench {

// The class is as thread-safe as the store to which it passes everything on.
class CountedStore final : public ::gloo::rendezvous::Store {
 public:
  explicit CountedStore(std::shared_ptr<Store> store) : store_(std::move(store)) {}

  void set(const std::string& key, const std::vector<char>& data) override;
  std::vector<char> get(const std::string& key) override;
  void wait(const std::vector<std::string>& keys) override;
  void wait(const std::vector<std::string>& keys,
            const std::chrono::milliseconds& timeout) override;

  // Returns how many times a key was set, read or waited for so far.
  uint64_t requests() const { return requests_; }

 private:
  const std::shared_ptr<Store> store_;
  std::atomic<uint64_t> requests_{0};
};

}  // namespace nezha::bench
