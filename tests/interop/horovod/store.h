// SPDX-License-Identifier: Apache-2.0
// A rendezvous store of the program's own, like Horovod's store over HTTP: files in a folder.
#pragma once

#include <gloo/common/error.h>
#include <gloo/rendezvous/store.h>

#include <chrono>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>
#include <vector>

class FolderStore : public gloo::rendezvous::Store {
 public:
  // Keys of different prefixes are different keys.
  FolderStore(const std::string& folder, const std::string& prefix)
      : start_(folder + "/" + prefix + "-") {}

  void set(const std::string& key, const std::vector<char>& data) override {
    const std::string path = path_of(key);
    std::ofstream(path + ".part").write(data.data(), static_cast<std::streamsize>(data.size()));
    std::rename((path + ".part").c_str(), path.c_str());
  }

  std::vector<char> get(const std::string& key) override {
    wait({key});
    std::ifstream file(path_of(key));
    return {std::istreambuf_iterator<char>(file), {}};
  }

  void wait(const std::vector<std::string>& keys) override { wait(keys, kDefaultTimeout); }

  void wait(const std::vector<std::string>& keys,
            const std::chrono::milliseconds& timeout) override {
    const auto end = std::chrono::steady_clock::now() + timeout;
    for (const std::string& key : keys) {
      while (!std::ifstream(path_of(key)).good()) {
        if (std::chrono::steady_clock::now() > end) throw gloo::IoException("no key " + key);
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
      }
    }
  }

 private:
  std::string path_of(std::string key) const {
    for (char& each : key) {
      if (each == '/') each = '_';
    }
    return start_ + key;
  }

  const std::string start_;
};
