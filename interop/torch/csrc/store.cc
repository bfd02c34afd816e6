// SPDX-License-Identifier: Apache-2.0
#include "interop/torch/csrc/store.h"

#include <algorithm>
#include <stdexcept>
#include <thread>
#include <utility>

namespace nezha_torch {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

// The pauses between two checks for a key. A TCPStore's own wait would block the store for all
// other threads of the process, so two ranks in it that wait for each other's keys would wait for
// ever.
constexpr milliseconds kFirstPause{1};
constexpr milliseconds kLongestPause{50};

}  // namespace

c10::intrusive_ptr<c10d::Store> Store::store() const {
  const std::lock_guard lock(mutex_);
  return store_;
}

void Store::set(const std::string& key, const std::vector<char>& data) {
  const auto store = this->store();
  if (store == nullptr) return;  // all ranks have joined, so no rank looks for the key any more
  store->set(prefix_ + key, std::vector<uint8_t>(data.begin(), data.end()));
}

std::vector<char> Store::get(const std::string& key) {
  const auto store = this->store();
  if (store == nullptr) {
    const std::lock_guard lock(mutex_);
    const auto found = known_.find(key);
    if (found != known_.end()) return found->second;
    throw std::runtime_error("the process group has left its store, in which the key '" + key +
                             "' was not there");
  }
  const std::vector<uint8_t> value = store->get(prefix_ + key);
  return {value.begin(), value.end()};
}

bool Store::has(const std::vector<std::string>& keys) {
  const auto store = this->store();
  if (store == nullptr) {
    const std::lock_guard lock(mutex_);
    return std::all_of(keys.begin(), keys.end(),
                       [this](const std::string& key) { return known_.count(key) > 0; });
  }
  std::vector<std::string> full;
  full.reserve(keys.size());
  for (const std::string& key : keys) full.push_back(prefix_ + key);
  return store->check(full);
}

void Store::wait(const std::vector<std::string>& keys) { wait(keys, kDefaultTimeout); }

void Store::wait(const std::vector<std::string>& keys, const milliseconds& timeout) {
  const auto deadline = steady_clock::now() + timeout;
  for (milliseconds pause = kFirstPause; !has(keys); pause = std::min(2 * pause, kLongestPause)) {
    const auto left = deadline - steady_clock::now();
    if (left <= left.zero()) {
      throw std::runtime_error("the keys are not in PyTorch's store after " +
                               std::to_string(timeout.count()) + " ms");
    }
    std::this_thread::sleep_for(std::min<steady_clock::duration>(pause, left));
  }
}

void Store::leave(const std::vector<std::string>& keys) {
  std::map<std::string, std::vector<char>> known;
  for (const std::string& key : keys) known[key] = get(key);
  const std::lock_guard lock(mutex_);
  known_ = std::move(known);
  store_.reset();
}

}  // namespace nezha_torch
