// SPDX-License-Identifier: Apache-2.0
#include "bench/meeting/counted_store.h"

namespace nezha::bench {

void CountedStore::set(const std::string& key, const std::vector<char>& data) {
  ++requests_;
  store_->set(key, data);
}

std::vector<char> CountedStore::get(const std::string& key) {
  ++requests_;
  return store_->get(key);
}

void CountedStore::wait(const std::vector<std::string>& keys) {
  requests_ += keys.size();
  store_->wait(keys);
}

void CountedStore::wait(const std::vector<std::string>& keys,
                        const std::chrono::milliseconds& timeout) {
  requests_ += keys.size();
  store_->wait(keys, timeout);
}

}  // namespace nezha::bench
